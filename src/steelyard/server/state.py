"""What one round hands to the next, on the server's side."""

from dataclasses import dataclass

from steelyard.server.aggregation import ServerState
from steelyard.types import Message, Round


@dataclass(frozen=True, eq=False)
class FederationState:
    """The server after a round."""

    round: int
    server: ServerState
    pending: Round | None = None
    """The record of this round, until the scores of its model come back with the next exchange."""
    best: float = float("-inf")
    """The best value of the monitored metric so far; negative where a smaller one is better."""
    stale: int = 0
    """Evaluations since the best one."""
    monitor: str = ""
    """The metric; empty if none is monitored, or none was found yet."""
    best_round: int = 0
    best_model: Message | None = None
    """The model of that round. None, and no memory, if nothing is monitored."""
