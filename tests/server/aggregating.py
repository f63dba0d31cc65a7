"""Replies, simple rules and a round of the server, that the tests of the server's side of a round share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from steelyard.combining import Combiner, Mean
from steelyard.server.aggregation import Aggregated, Aggregator, ServerState
from steelyard.server.screening import Asked, screen
from steelyard.settings import Server
from steelyard.sites import Answer
from steelyard.types import Combined, Message, Reply, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Samples, Weigher
from steelyard.weighing.geometry import Geometry

POSTERIOR = Message(torch.zeros(2), torch.ones(2))


class MeanAndVariance(Combiner):
    needs = frozenset({"mean", "variance"})

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        assert stack.variance is not None
        return Combined(weights.float() @ stack.mean, weights.float() @ stack.variance)


class Fixed(Weigher):
    """Returns what it was told to, and keeps what it saw."""

    def __init__(self, *weights: float) -> None:
        self.weights = torch.tensor(weights, dtype=torch.float64)
        self.seen: list[tuple[Tensor, RoundInfo, State]] = []

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        self.seen.append((geometry.updates, round, state))
        return Weighed(self.weights, {"calls": torch.tensor(len(self.seen))})


def reply(client: str, *mean: float, examples: Any = 10, variance: Tensor | None = None) -> Reply:
    return Reply(client, Message(torch.tensor(mean, dtype=torch.float32), variance), examples)


def aggregate(
    replies: Sequence[Reply],
    *,
    invited: Sequence[str] | None = None,
    start: Message | ServerState | None = None,
    weigher: Weigher | None = None,
    combiner: Combiner | None = None,
    num_parameters: int | None = None,
    **server: Any,
) -> Aggregated:
    if start is None:
        start = Message(torch.zeros_like(replies[0].message.mean))
    message = start.message if isinstance(start, ServerState) else start
    size = len(message.mean) if num_parameters is None else num_parameters
    aggregator = Aggregator(weigher or Samples(), combiner or Mean(), Server(**server), size)
    state = start if isinstance(start, ServerState) else aggregator.init(start)
    ids = sorted({each.client for each in replies})
    return screened_round(aggregator, state, replies, invited or ids)


def screened_round(
    aggregator: Aggregator, state: ServerState, replies: Sequence[Reply], invited: Sequence[str]
) -> Aggregated:
    """Screen and merge replies as the server does; what the screening rejects is in `rejected`, too."""
    clients = sorted({*invited, *(each.client for each in replies)})
    asked = Asked(clients, invited, state.message, aggregator.server.max_examples)
    exchange = screen(asked, [Answer(each.client, each) for each in replies])
    done = aggregator.aggregate(state, exchange.replies, invited, 1)
    return replace(done, rejected={**exchange.rejected, **done.rejected})


def replies_of(rows: list[Tensor]) -> list[Reply]:
    return [Reply(f"c{number}", Message(row), 1) for number, row in enumerate(rows)]
