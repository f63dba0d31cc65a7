"""The result of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from steelyard.errors import InputError
from steelyard.server.state import FederationState
from steelyard.types import ClientId, Row


def _stays_at_its_site(client: ClientId) -> nn.Module:
    raise InputError(f"the model of client {client!r} is at its site; only the shared part is known here.")


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run: one row for each round, one for each client in each round, and the model."""

    history: tuple[Row, ...]
    clients: tuple[Row, ...]
    model: nn.Module
    """What is shared: the whole model, or the head."""
    state: FederationState
    """The server after the last round."""
    model_of: Callable[[ClientId], nn.Module] = _stays_at_its_site
    """A client's whole model; where only the head is shared, with the client's own body."""
    path: Path | None = None
    """The folder of the run, if it is recorded."""

    @property
    def accuracy(self) -> float:
        """Test accuracy at the end; nan without a common test set."""
        return float(self.history[-1].get("accuracy", float("nan")) or 0.0)
