"""The private state of one site on its own disk: a file for each round that it trained in, by run."""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from steelyard.errors import InputError
from steelyard.tensor_files import Name, load_tensors, save_tensors
from steelyard.types import EMPTY, ClientId, State

RUN = re.compile(r"[0-9a-f]{16,64}")
STATE = re.compile(r"after-(\d+)\.safetensors")


class SiteStates:
    """States of the one client of a site, for the run that the server asks about.

    The server says after which round it last had an update from this site, so the site goes back by itself
    when the server resumes from an earlier round.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.state = folder, "", EMPTY

    def open(self, run: str, after: int, keep: int, needed: bool, round: int = 0) -> None:
        """Take the state after a round, and remove the ones that neither side can need any more.

        `needed`: the client has private layers, so that a missing state is an error. `round` is the one to
        train in: states between `after` and `round` are of answers that never reached the server.
        """
        if not RUN.fullmatch(run):
            raise InputError("the server sent a run id of the wrong form.")
        self.run, path = run, self._path(run, after)
        self.state = EMPTY
        if after and path.is_file():
            tensors, _ = load_tensors(path)
            self.state = {name: tensor for (name,), tensor in tensors.items()}
        elif after and needed:
            raise InputError(
                f"the private layers after round {after} are not in {path.parent}; restore that folder from "
                "a copy, or begin a new run."
            )
        files = self._files()
        oldest = max((each for each in files if each <= min(after, keep)), default=0)
        for each, old in files.items():
            if each < oldest or after < each < round:
                old.unlink(missing_ok=True)

    def get(self, client: ClientId) -> State:
        return self.state

    def put(self, round: int, states: Mapping[ClientId, State]) -> None:
        """Save the state after a round, durably, before the answer is sent."""
        for state in states.values():
            named: dict[Name, Tensor] = {(name,): tensor for name, tensor in state.items()}
            path = self._path(self.run, round)
            path.parent.mkdir(parents=True, exist_ok=True)
            save_tensors(path, named)

    def _path(self, run: str, round: int) -> Path:
        return self.folder / run / f"after-{round}.safetensors"

    def _files(self) -> dict[int, Path]:
        """The states of this run by round."""
        folder = self.folder / self.run
        paths = list(folder.iterdir()) if folder.is_dir() else []
        return {int(match[1]): path for path in paths if (match := STATE.fullmatch(path.name))}
