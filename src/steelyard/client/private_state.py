"""What stays with clients between rounds: private layers and histories, in memory or in files.

States are committed by round, so that after a crash the sites go back to the round that the server saved.
The last two commits are kept: the server may die between a commit and its own save.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from steelyard.errors import InputError
from steelyard.tensor_files import Name, load_tensors, save_tensors
from steelyard.types import EMPTY, ClientId, State

V = TypeVar("V")
KEPT = 2  # commits
COMMIT = re.compile(r"after-(\d+)\.(safetensors|json)")
STATE_FILE = re.compile(r"\d+-[0-9a-f]{24}\.safetensors")


class PrivateStates(Protocol):
    """The private states of the clients of a simulation."""

    def get(self, client: ClientId) -> State:
        """The state of a client; empty before its first round."""

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        """Replace the states of some clients after they trained in a round."""

    def commit(self, round: int) -> None:
        """Keep the states as they were after a round, durably; those of a later round are dropped.

        Clients may have trained in a round that the server did not finish.
        """

    def rewind(self, round: int) -> None:
        """Go back to the states committed under a round; round 0 has none."""


class Versions(Generic[V]):
    """A value for each client: as it was after the last finished round, and changed in the present one."""

    def __init__(self, values: Mapping[ClientId, V] | None = None) -> None:
        self.finished: dict[ClientId, V] = dict(values or {})
        self.changed: dict[ClientId, V] = {}
        self.round = 0

    def get(self, client: ClientId) -> V | None:
        return self.changed.get(client) or self.finished.get(client)

    def put(self, round: int, values: Mapping[ClientId, V]) -> None:
        if round != self.round:
            self.finish(self.round)
        self.round = round
        self.changed |= values

    def finish(self, round: int) -> None:
        """Keep the changes of rounds up to this one, drop those of a later one."""
        if self.round <= round:
            self.finished |= self.changed
        self.changed = {}


class MemoryStates:
    """States in memory; with a folder, commits write them to one file."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.states: Versions[State] = Versions()

    def get(self, client: ClientId) -> State:
        return self.states.get(client) or EMPTY

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        self.states.put(round, states)

    def commit(self, round: int) -> None:
        self.states.finish(round)
        if self.folder is None or not self.states.finished:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        named: dict[Name, Tensor] = {
            (client, name): tensor
            for client, state in self.states.finished.items()
            for name, tensor in state.items()
        }
        save_tensors(self.folder / f"after-{round}.safetensors", named)
        for path in _commits(self.folder)[:-KEPT]:
            path.unlink()

    def rewind(self, round: int) -> None:
        path = _drop_later(self.folder, round)
        states: dict[ClientId, dict[str, Tensor]] = {}
        for (client, name), tensor in ({} if path is None else load_tensors(path)[0]).items():
            states.setdefault(client, {})[name] = tensor
        self.states = Versions(states)


class StateFiles:
    """States in files, one for each client, read when the client trains; a commit is a list of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: Versions[str] = Versions()
        self.committed: list[set[str]] = []

    def get(self, client: ClientId) -> State:
        name = self.files.get(client)
        if name is None:
            return EMPTY
        path = self.folder / name
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot read the state of client {client!r}, {path}: {error}.") from None

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        begins = round != self.files.round
        for client, state in states.items():
            tensors = {key: tensor.contiguous() for key, tensor in state.items()}
            save_file(tensors, self.folder / _file_name(round, client))
        self.files.put(round, {client: _file_name(round, client) for client in states})
        if begins:
            self._remove_unused()

    def commit(self, round: int) -> None:
        self.files.finish(round)
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / "commit.partial"
        partial.write_text(json.dumps(self.files.finished), "utf-8")
        os.replace(partial, self.folder / f"after-{round}.json")
        self.committed = [*self.committed, set(self.files.finished.values())][-KEPT:]
        for path in _commits(self.folder)[:-KEPT]:
            path.unlink()
        self._remove_unused()

    def rewind(self, round: int) -> None:
        path = _drop_later(self.folder, round)
        try:
            files = {} if path is None else json.loads(path.read_text("utf-8"))
            valid = all(STATE_FILE.fullmatch(name) for name in files.values())
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise InputError(f"cannot read {path}: {error}.") from None
        if not valid:
            raise InputError(f"{path} names files that are not private states; restore the folder.")
        self.files, self.committed = Versions(files), [set(files.values())]
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Remove the files that neither the present states nor a kept commit refers to."""
        present = {*self.files.finished.values(), *self.files.changed.values()}
        used = present.union(*self.committed)
        for path in self.folder.glob("*.safetensors") if self.folder.is_dir() else ():
            if STATE_FILE.fullmatch(path.name) and path.name not in used:
                path.unlink(missing_ok=True)


def _file_name(round: int, client: ClientId) -> str:
    """Client ids may hold any character, file names may not."""
    return f"{round}-{hashlib.blake2b(client.encode(), digest_size=12).hexdigest()}.safetensors"


def _commits(folder: Path | None) -> Sequence[Path]:
    """The commits in a folder, oldest first."""
    paths = [] if folder is None or not folder.is_dir() else list(folder.iterdir())
    found = {path: match for path in paths if (match := COMMIT.fullmatch(path.name))}
    return sorted(found, key=lambda path: int(found[path][1]))


def _drop_later(folder: Path | None, round: int) -> Path | None:
    """Remove the commits after a round; returns that of the round itself, if clients had states by then."""
    numbers = {path: int(path.stem.removeprefix("after-")) for path in _commits(folder)}
    if round and numbers and round not in numbers.values():
        raise InputError(
            f"{folder} has private states after rounds {sorted(numbers.values())}, not after round {round}; "
            "restore the folder of the run from a copy."
        )
    for path, number in numbers.items():
        if number > round or not round:
            path.unlink()
    return next((path for path, number in numbers.items() if number == round and round), None)
