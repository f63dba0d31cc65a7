"""What sees the rounds of a run: observers, and a keeper, which also keeps the server's state."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import nn

from steelyard.server.selection import Best
from steelyard.server.state import FederationState
from steelyard.types import Round, Row

Observer = Callable[[Round], None]
"""Called with every completed round: a progress bar, a logger."""


class Keeper(Protocol):
    """An observer that also keeps the server's state, from which a run can be resumed."""

    def __call__(self, round: Round) -> None: ...

    def is_due(self) -> bool:
        """Whether a state should be saved now."""

    def save(self, state: FederationState) -> None: ...

    def finish(self, state: FederationState, model: nn.Module, best: Best | None) -> None:
        """Keep the state, the model and the best round in the end, also when the run is interrupted."""

    def note(self, **values: str) -> None:
        """Keep facts about the run as a whole."""

    def rows(self) -> tuple[Sequence[Row], Sequence[Row]]:
        """A row for each round, and one for each client in each round."""


class InMemory:
    """The keeper of a run that is not recorded: it has the rows for the result."""

    def __init__(self) -> None:
        self._history: list[Row] = []
        self._clients: list[Row] = []

    def __call__(self, round: Round) -> None:
        self._history.append({"round": round.number, **round.metrics})
        self._clients.extend({"round": round.number, **row} for row in round.clients)

    def is_due(self) -> bool:
        return False

    def save(self, state: FederationState) -> None:
        """There is nowhere to save it."""

    def finish(self, state: FederationState, model: nn.Module, best: Best | None) -> None:
        """They are in the result."""

    def note(self, **values: str) -> None:
        """They are in the result."""

    def rows(self) -> tuple[Sequence[Row], Sequence[Row]]:
        return tuple(self._history), tuple(self._clients)
