"""What stays with the clients between their rounds, in files instead of in memory."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from steelyard.errors import InputError
from steelyard.types import ClientId, State


@dataclass(frozen=True, eq=False)
class StateFiles(Mapping[ClientId, State]):
    """Each client's state is a file of its own, read when the client trains.

    A new state is a new file, so a shelf stays as it was when another is made from it. `prune` removes the
    files that newer ones have replaced, once nobody will go back to them.
    """

    folder: Path
    files: Mapping[ClientId, str] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.files)

    def __getitem__(self, client: ClientId) -> State:
        path = self.folder / self.files[client]
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot read what client {client!r} kept, {path}: {error}.") from None

    def put(self, round: int, states: Mapping[ClientId, State]) -> "StateFiles":
        """The shelf after a round."""
        files = {client: _file_name(round, client) for client in states}
        self.folder.mkdir(parents=True, exist_ok=True)
        for client, state in states.items():
            save_file({name: each.contiguous() for name, each in state.items()}, self.folder / files[client])
        old = [
            self.files[client] for client in files if self.files.get(client, files[client]) != files[client]
        ]
        return StateFiles(self.folder, {**self.files, **files}, self.replaced + old)

    def prune(self) -> None:
        """Remove the files that have been replaced."""
        for name in self.replaced:
            (self.folder / name).unlink(missing_ok=True)
        self.replaced.clear()


def _file_name(round: int, client: ClientId) -> str:
    """Client ids may hold anything, file names may not."""
    return f"{round}-{hashlib.blake2b(client.encode(), digest_size=12).hexdigest()}.safetensors"


def remember(
    kept: Mapping[ClientId, State], round: int, states: Mapping[ClientId, State]
) -> Mapping[ClientId, State]:
    """What stays with the clients after a round, where it was kept before."""
    if not states:
        return kept
    return kept.put(round, states) if isinstance(kept, StateFiles) else {**kept, **states}
