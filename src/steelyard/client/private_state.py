"""What stays with clients between rounds: private layers and histories, in memory or in files.

States are committed by round, so that after a crash the sites go back to the round that the server saved.
The server keeps its last two states and saves after the sites, so three commits are kept.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from steelyard.errors import InputError
from steelyard.tensor_files import PARTIAL, Name, load_tensors, save_tensors, sync
from steelyard.types import EMPTY, ClientId, State

V = TypeVar("V")
KEPT = 3  # commits
COMMIT = re.compile(r"after-(\d+)\.safetensors")
STATE_FILE = re.compile(r"\d+-[0-9a-f]{24}\.safetensors")
Check = Callable[[], None]
"""Raises an error if another process has taken over the folder; called before files are changed."""


def no_check() -> None:
    """The default for states that no other process can write."""


class ClientStates(Protocol):
    """The private states of clients, as a site uses them."""

    def get(self, client: ClientId) -> State:
        """The state of a client; empty before its first round."""

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        """Replace the states of some clients after they trained in a round."""


class PrivateStates(ClientStates, Protocol):
    """The private states of the clients of a simulation."""

    check: Check

    def commit(self, round: int) -> None:
        """Keep the states as they were after a round, durably; those of a later round are dropped.

        Clients may have trained in a round that the server did not finish.
        """

    def read(self, round: int) -> None:
        """Take the states committed under a round, and change no file; round 0 has none.

        States that are damaged are refused.
        """

    def rewind(self, round: int) -> None:
        """Go back to the states committed under a round, and remove the files of later ones."""


def take_over(states: PrivateStates, given: ClientStates, clients: Iterable[ClientId], round: int) -> None:
    """Begin with the states that clients had after a round of another run."""
    found = {client: state for client in clients if (state := given.get(client))}
    if found:
        states.put(round, found)
    states.commit(round)


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

    def __init__(self, folder: Path | None = None, check: Check = no_check) -> None:
        self.folder, self.check = folder, check
        self.states: Versions[State] = Versions()

    def get(self, client: ClientId) -> State:
        return self.states.get(client) or EMPTY

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        self.states.put(round, states)

    def commit(self, round: int) -> None:
        self.states.finish(round)
        if self.folder is None or not self.states.finished:
            return
        self.check()
        named: dict[Name, Tensor] = {
            (client, name): tensor
            for client, state in self.states.finished.items()
            for name, tensor in state.items()
        }
        save_tensors(_commit_path(self.folder, round), named)
        _remove_old_commits(self.folder)

    def read(self, round: int) -> None:
        path = _commit_of(self.folder, round)
        tensors, values = ({}, {}) if path is None else load_tensors(path)
        if "files" in values or any(len(name) != 2 for name in tensors):
            raise InputError(f"{path} is a list of files: resume the run with spill = true.")
        states: dict[ClientId, dict[str, Tensor]] = {}
        for (client, name), tensor in tensors.items():
            states.setdefault(client, {})[name] = tensor
        self.states = Versions(states)

    def rewind(self, round: int) -> None:
        self.read(round)
        _remove_later_commits(self.folder, round)


class StateFiles:
    """States in files, one for each client, read when the client trains; a commit is a list of files."""

    def __init__(self, folder: Path, check: Check = no_check) -> None:
        self.folder, self.check = folder, check
        self.files: Versions[str] = Versions()
        self.committed: list[set[str]] = []

    def get(self, client: ClientId) -> State:
        name = self.files.get(client)
        return EMPTY if name is None else self._load(client, name)

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        begins = round != self.files.round
        if begins:
            self.check()
        for client, state in states.items():
            named: dict[Name, Tensor] = {(name,): tensor for name, tensor in state.items()}
            save_tensors(self.folder / _file_name(round, client), named, durable=False)
        self.files.put(round, {client: _file_name(round, client) for client in states})
        if begins:
            self._remove_unused()

    def commit(self, round: int) -> None:
        self.files.finish(round)
        self.check()
        files = self.files.finished
        for name in set(files.values()).difference(*self.committed):
            sync(self.folder / name)
        save_tensors(_commit_path(self.folder, round), {}, {"files": files})
        self.committed = [*self.committed, set(files.values())][-KEPT:]
        _remove_old_commits(self.folder)
        self._remove_unused()

    def read(self, round: int) -> None:
        path = _commit_of(self.folder, round)
        files = {} if path is None else _listed_files(path)
        for client, name in files.items():
            self._load(client, name)
        self.files, self.committed = Versions(files), [set(files.values())]

    def rewind(self, round: int) -> None:
        self.read(round)
        _remove_later_commits(self.folder, round)
        for path in _commits(self.folder).values():
            with suppress(InputError):  # the commits before may be damaged
                self.committed.append(set(_listed_files(path).values()))
        self._remove_unused()

    def _load(self, client: ClientId, name: str) -> State:
        try:
            tensors, _ = load_tensors(self.folder / name)
        except InputError as error:
            raise InputError(f"cannot read the state of client {client!r}: {error}") from None
        return {key: tensor for (key,), tensor in tensors.items()}

    def _remove_unused(self) -> None:
        """Remove the files that neither the present states nor a kept commit refers to."""
        present = {*self.files.finished.values(), *self.files.changed.values()}
        used = present.union(*self.committed)
        for path in self.folder.glob("*.safetensors") if self.folder.is_dir() else ():
            if STATE_FILE.fullmatch(path.name) and path.name not in used:
                path.unlink(missing_ok=True)


def _file_name(round: int, client: ClientId) -> str:
    """Client ids may hold any character, file names may not."""
    digest = hashlib.blake2b(client.encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{round}-{digest.hexdigest()}.safetensors"


def _commit_path(folder: Path, round: int) -> Path:
    return folder / f"after-{round}.safetensors"


def _commits(folder: Path | None) -> dict[int, Path]:
    """The commits in a folder by round, oldest first."""
    paths = [] if folder is None or not folder.is_dir() else list(folder.iterdir())
    return dict(sorted((int(match[1]), path) for path in paths if (match := COMMIT.fullmatch(path.name))))


def _commit_of(folder: Path | None, round: int) -> Path | None:
    """The commit of a round, if clients had states by then."""
    commits = _commits(folder) if round else {}
    if commits and round not in commits:
        raise InputError(
            f"{folder} has private states after rounds {list(commits)}, not after round {round}; "
            "restore the folder of the run from a copy."
        )
    return commits.get(round)


def _listed_files(commit: Path) -> dict[ClientId, str]:
    """The files that a commit of `StateFiles` lists, by client."""
    files = load_tensors(commit)[1].get("files")
    if not isinstance(files, dict):
        raise InputError(f"{commit} is not a list of files: resume the run with spill = false.")
    if not all(isinstance(name, str) and STATE_FILE.fullmatch(name) for name in files.values()):
        raise InputError(f"{commit} names files that are not private states; restore the folder.")
    return files


def _remove_old_commits(folder: Path) -> None:
    for path in list(_commits(folder).values())[:-KEPT]:
        path.unlink(missing_ok=True)


def _remove_later_commits(folder: Path | None, round: int) -> None:
    """Remove the commits after a round, and files that were not written to their end."""
    for number, path in _commits(folder).items():
        if number > round or not round:
            path.unlink(missing_ok=True)
    for path in [] if folder is None or not folder.is_dir() else list(folder.iterdir()):
        if path.name.endswith(PARTIAL) or path.name.startswith(".tmp"):
            path.unlink()
