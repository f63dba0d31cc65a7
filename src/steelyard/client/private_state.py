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
from typing import Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from steelyard.errors import InputError
from steelyard.tensor_files import Name, load_tensors, save_tensors
from steelyard.types import EMPTY, ClientId, State

KEPT = 2  # commits
COMMIT = re.compile(r"after-(\d+)\.(safetensors|json)")
STATE_FILE = re.compile(r"\d+-[0-9a-f]{24}\.safetensors")


class PrivateStates(Protocol):
    """The private states of the clients of a simulation."""

    def get(self, client: ClientId) -> State:
        """The state of a client; empty before its first round."""

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        """Replace the states of some clients after a round."""

    def commit(self, round: int) -> None:
        """Make the present states durable under a round."""

    def rewind(self, round: int) -> None:
        """Go back to the states committed under a round; round 0 has none."""


class MemoryStates:
    """States in memory; with a folder, commits write them to one file."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.states: dict[ClientId, State] = {}

    def get(self, client: ClientId) -> State:
        return self.states.get(client, EMPTY)

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        self.states |= states

    def commit(self, round: int) -> None:
        if self.folder is None or not self.states:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        named: dict[Name, Tensor] = {
            (client, name): tensor for client, state in self.states.items() for name, tensor in state.items()
        }
        save_tensors(self.folder / f"after-{round}.safetensors", named)
        for path in _commits(self.folder)[:-KEPT]:
            path.unlink()

    def rewind(self, round: int) -> None:
        self.states = {}
        path = _drop_later(self.folder, round)
        if path is None:
            return
        states: dict[ClientId, dict[str, Tensor]] = {}
        for (client, name), tensor in load_tensors(path)[0].items():
            states.setdefault(client, {})[name] = tensor
        self.states = dict(states)


class StateFiles:
    """States in files, one for each client, read when the client trains; a commit is a list of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[ClientId, str] = {}
        self.committed: list[set[str]] = []

    def get(self, client: ClientId) -> State:
        if client not in self.files:
            return EMPTY
        path = self.folder / self.files[client]
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"cannot read the private state of client {client!r}, {path}: {error}."
            ) from None

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for client, state in states.items():
            name = _file_name(round, client)
            save_file({key: tensor.contiguous() for key, tensor in state.items()}, self.folder / name)
            replaced = self.files.get(client)
            self.files[client] = name
            if replaced not in (None, name) and not any(replaced in files for files in self.committed):
                (self.folder / str(replaced)).unlink(missing_ok=True)

    def commit(self, round: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / "commit.partial"
        partial.write_text(json.dumps(self.files), "utf-8")
        os.replace(partial, self.folder / f"after-{round}.json")
        self.committed = [*self.committed, set(self.files.values())][-KEPT:]
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
        self.files, self.committed = files, [set(files.values())]
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Remove the files that neither the present nor a kept commit refers to."""
        used = set(self.files.values()).union(*self.committed)
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
    commits = {int(COMMIT.fullmatch(path.name)[1]): path for path in _commits(folder)}  # type: ignore[index]
    for later in [number for number in commits if number > round]:
        commits.pop(later).unlink()
    if round and commits and round not in commits:
        raise InputError(
            f"{folder} has the private states after round {max(commits)}, not after round {round}; "
            "restore the folder of the run from a copy."
        )
    return commits.get(round)
