"""What one round hands to the next, on the server's side."""

from dataclasses import dataclass

from steelyard.server.aggregation import ServerState
from steelyard.types import Round


@dataclass(frozen=True, eq=False)
class FederationState:
    """The server after a round."""

    round: int
    server: ServerState
    pending: Round | None = None
    """The record of this round, until the scores of its model come back with the next exchange."""
    best: float = float("-inf")
    """The best score so far, larger is better."""
    stale: int = 0
    """Evaluations since the best one."""
