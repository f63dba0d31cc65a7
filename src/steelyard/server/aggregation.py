"""How the server merges replies, read top to bottom: screen → clip → weigh → combine → step.

Nothing in a reply is trusted: a reply that cannot be used is rejected with the reason, and the round goes on
with the rest. Below a quorum the round is skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steelyard.combining import Combiner
from steelyard.errors import InputError
from steelyard.server.screening import by_precision, clip, norm_limit, screen
from steelyard.settings import Server
from steelyard.types import EMPTY, ClientId, Combined, Message, Reply, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry


@dataclass(frozen=True, eq=False)
class ServerState:
    """What aggregation keeps between rounds."""

    message: Message
    """The shared model, as it goes down to the clients."""
    weighing: State = field(default_factory=dict)
    velocity: Tensor | None = None
    average: Message | None = None
    """The mean of the models of the last rounds (`server.average`)."""
    lengths: Tensor | None = None
    """The median norm of each round so far, at most its limit (`server.clip = "usual"`)."""

    @property
    def evaluated_model(self) -> Message:
        """The model that is evaluated and that the run ends with."""
        return self.message if self.average is None else self.average


@dataclass(frozen=True, eq=False)
class Aggregated:
    """The result of one round's aggregation."""

    state: ServerState
    clients: tuple[ClientId, ...]
    """The clients whose replies were used; the tensors below have one entry for each, in this order."""
    weights: Tensor
    norms: Tensor
    evidence: Mapping[str, Tensor]
    rejected: Mapping[ClientId, str]
    """The reason for each client whose reply was not used."""

    @property
    def skipped(self) -> bool:
        return not self.clients


@dataclass(frozen=True, eq=False)
class Aggregator:
    """A weighing rule, a combining rule and the server's settings."""

    weigher: Weigher
    combiner: Combiner
    server: Server
    num_parameters: int
    """The leading coordinates are parameters, the rest are running statistics."""

    def init(self, message: Message) -> ServerState:
        return ServerState(message, self.weigher.init())

    def aggregate(
        self, state: ServerState, replies: Sequence[Reply], invited: Sequence[ClientId], round: int
    ) -> Aggregated:
        accepted, rejected = screen(replies, invited, state.message, self.server.max_examples)
        if not accepted or len(accepted) < self.server.quorum * len(invited) - 1e-9:
            none = torch.zeros(0, dtype=torch.float64)
            return Aggregated(state, (), none, none, EMPTY, rejected)
        clients = tuple(reply.client for reply in accepted)
        counts = torch.tensor([reply.num_examples for reply in accepted], dtype=torch.float64)
        stack = stack_up(accepted)
        geometry = Geometry(stack.mean[:, : self.num_parameters])
        norms = geometry.norms
        lengths = None
        if self.server.clip is not None:
            limit, lengths = norm_limit(norms, self.server.clip, state.lengths)
            if bool((norms > limit).any()):
                stack = clip(stack, norms, limit)
                geometry = Geometry(stack.mean[:, : self.num_parameters])
        if self.server.geometry == "precision" and stack.variance is not None:
            pulls = by_precision(stack.mean, stack.variance)
            geometry = Geometry(pulls[:, : self.num_parameters])
        weighed = weigh(self.weigher, geometry, RoundInfo(round, clients, counts), state.weighing)
        combined = self.combiner.combine(stack, weighed.weights)
        moved = step(state, combined, self.server, self.num_parameters)
        average = averaged(state.evaluated_model, moved.message, self.server.average, round)
        moved = replace(moved, weighing=weighed.state, average=average, lengths=lengths)
        return Aggregated(moved, clients, weighed.weights, norms, weighed.evidence, rejected)


def stack_up(replies: Sequence[Reply]) -> Stack:
    """The messages of replies as rows of matrices."""
    variances = [reply.message.variance for reply in replies if reply.message.variance is not None]
    return Stack(_pile([reply.message.mean for reply in replies]), _pile(variances) if variances else None)


def _pile(rows: Sequence[Tensor]) -> Tensor:
    """Vectors as the rows of a matrix, without a copy if they already are rows of one."""
    first, size = rows[0], rows[0].numel()
    memory, start = first.untyped_storage().data_ptr(), first.storage_offset()
    for number, row in enumerate(rows):
        place = (row.untyped_storage().data_ptr(), row.storage_offset(), row.stride())
        if place != (memory, start + number * size, (1,)):
            return torch.stack(list(rows))
    return first.as_strided((len(rows), size), (size, 1))


def weigh(weigher: Weigher, geometry: Geometry, info: RoundInfo, state: State) -> Weighed:
    """Apply a weighing rule and check its weights."""
    weighed = weigher.weigh(geometry, info, state)
    weights = weighed.weights
    if weights.shape != (len(geometry),) or not bool(torch.isfinite(weights).all()):
        raise InputError(
            f"weighing rule {type(weigher).__name__} returned weights {weights.tolist()} "
            f"for {len(geometry)} clients in round {info.number}; one finite number each is needed."
        )
    return weighed


def step(state: ServerState, combined: Combined, server: Server, num_parameters: int) -> ServerState:
    """Move the model: parameters with the server's learning rate and momentum, running statistics without."""
    change = combined.mean.clone()
    velocity = change[:num_parameters]
    if server.momentum:
        before = torch.zeros_like(velocity) if state.velocity is None else state.velocity
        velocity = server.momentum * before + velocity
    change[:num_parameters] = server.lr * velocity
    message = Message(state.message.mean + change, combined.variance)
    return replace(state, message=message, velocity=velocity if server.momentum else None)


def averaged(before: Message, now: Message, window: int, round: int) -> Message | None:
    """A running mean of the model, over fewer rounds in the beginning so that it does not lag.

    The newest model counts with 4/(t + 3) (Shamir & Zhang, 2013: polynomial decay), and at least 1/window.
    """
    if window == 1:
        return None
    share = max(4 / (round + 3), 1 / window)
    mean = torch.lerp(before.mean, now.mean, share)
    if before.variance is None or now.variance is None:
        return Message(mean, now.variance)
    return Message(mean, torch.lerp(before.variance, now.variance, share))
