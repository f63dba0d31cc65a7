"""The server's side of a round, read top to bottom: screen → clip → weigh → combine → step.

The only place where these meet. Nothing in a reply is trusted: what cannot be used is set aside with the
reason, and the round goes on with the rest or, below a quorum, is skipped whole.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from steelyard.combining import Combiner
from steelyard.errors import InputError
from steelyard.geometry import Geometry
from steelyard.types import EMPTY, ClientId, Combined, Message, Reply, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Weigher

LARGEST = 1e30  # finite numbers above this would overflow float32 once they are added up
EXTREME = 1e6  # times the usual precision is as much as can be told apart
USUAL = 3.0  # times the usual length is what an honest update may have


@dataclass(frozen=True)
class Server:
    """How the server treats replies and moves the model."""

    lr: float = 1.0
    momentum: float = 0.0
    average: int = 1
    """The model that is evaluated and kept is a mean over about this many of the last rounds; clients still
    start from the last one."""
    clip: float | Literal["median", "usual"] | None = None
    """Bound on the norm of an update: a number, "median" for the median norm of the round, or "usual" for
    three times the median of that over the rounds so far, which keeps a model that is led astray from running
    away: the worse it gets, the longer its updates."""
    geometry: Literal["mean", "precision"] = "mean"
    """What a weighing rule sees of posteriors: their means or, with "precision", their means stretched where
    a client claims to be much more, or much less, certain than the others: who lies about it stands out."""
    quorum: float = 0.5
    """The share of invited clients whose replies must be usable, or else the round is skipped."""
    max_examples: int = 10_000_000
    """A reply that claims more examples than this is set aside."""

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise InputError(f"server.lr must be greater than 0, not {self.lr}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"server.momentum must be at least 0 and less than 1, not {self.momentum}.")
        if self.geometry not in ("mean", "precision"):
            raise InputError(f"server.geometry must be 'mean' or 'precision', not {self.geometry!r}.")
        if not 0 <= self.quorum <= 1:
            raise InputError(f"server.quorum is a share from 0 to 1, not {self.quorum}.")
        if not self.average >= 1:
            raise InputError(f"server.average is a number of rounds, at least 1, not {self.average}.")
        named = (None, "median", "usual")
        if self.clip not in named and not (isinstance(self.clip, float | int) and self.clip > 0):
            raise InputError(f"server.clip must be greater than 0, 'median' or 'usual', not {self.clip!r}.")
        if self.max_examples < 1:
            raise InputError(f"server.max_examples must be at least 1, not {self.max_examples}.")


@dataclass(frozen=True, eq=False)
class ServerState:
    """What the server remembers between rounds."""

    message: Message
    """The shared model, as it goes down to the clients."""
    weighing: State = field(default_factory=dict)
    velocity: Tensor | None = None
    average: Message | None = None
    """Of the models of the last rounds, where the server keeps one."""
    lengths: Tensor | None = None
    """The median norm of each round so far, at most its bound, where the server clips by what is usual."""

    @property
    def released(self) -> Message:
        """The model to use: what is evaluated, and what the run leaves behind."""
        return self.message if self.average is None else self.average


@dataclass(frozen=True, eq=False)
class Aggregated:
    """What a round came to."""

    state: ServerState
    clients: tuple[ClientId, ...]
    """The clients whose replies were used; the tensors below have one entry for each, in this order."""
    weights: Tensor
    norms: Tensor
    evidence: Mapping[str, Tensor]
    refused: Mapping[ClientId, str]
    """Who was set aside, and why."""

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
    """The first coordinates, which are parameters; those after them are running statistics."""

    def init(self, message: Message) -> ServerState:
        return ServerState(message, self.weigher.init())

    def aggregate(
        self, state: ServerState, replies: Sequence[Reply], invited: Sequence[ClientId], round: int
    ) -> Aggregated:
        accepted, refused = screen(replies, invited, state.message, self.server.max_examples)
        if not accepted or len(accepted) < self.server.quorum * len(invited) - 1e-9:
            nobody = torch.zeros(0, dtype=torch.float64)
            return Aggregated(state, (), nobody, nobody, EMPTY, refused)
        clients = tuple(reply.client for reply in accepted)
        counts = torch.tensor([reply.num_examples for reply in accepted], dtype=torch.float64)
        stack = stack_up(accepted)
        geometry = Geometry(stack.mean[:, : self.num_parameters])
        norms = geometry.norms
        lengths = None
        if self.server.clip is not None:
            bound, lengths = bound_on(norms, self.server.clip, state.lengths)
            if bool((norms > bound).any()):
                stack = clip(stack, norms, bound)
                geometry = Geometry(stack.mean[:, : self.num_parameters])
        if self.server.geometry == "precision" and stack.variance is not None:
            pulls = by_precision(stack.mean, stack.variance)
            geometry = Geometry(pulls[:, : self.num_parameters])
        weighed = weigh(self.weigher, geometry, RoundInfo(round, clients, counts), state.weighing)
        combined = self.combiner.combine(stack, weighed.weights)
        moved = step(state, combined, self.server, self.num_parameters)
        average = averaged(state.released, moved.message, self.server.average, round)
        moved = replace(moved, weighing=weighed.state, average=average, lengths=lengths)
        return Aggregated(moved, clients, weighed.weights, norms, weighed.evidence, refused)


def screen(
    replies: Sequence[Reply], invited: Sequence[ClientId], like: Message, max_examples: int
) -> tuple[list[Reply], dict[ClientId, str]]:
    """The usable replies in the order of client ids, and a reason for each client that is set aside."""
    by_client: dict[ClientId, Reply] = {}
    refused: dict[ClientId, str] = {}
    expected = set(invited)
    for reply in replies:
        if reply.client not in expected:
            refused[reply.client] = "was not invited to this round"
        elif reply.client in by_client:
            refused[reply.client] = "sent more than one reply"
        else:
            by_client[reply.client] = reply
            if reason := _fault(reply, like, max_examples):
                refused[reply.client] = reason
    for client in invited:
        if client not in by_client:
            refused[client] = "sent no reply"
    return [by_client[client] for client in sorted(by_client) if client not in refused], refused


def _fault(reply: Reply, like: Message, max_examples: int) -> str | None:
    """What is wrong with one reply, if anything."""
    if reply.message.slots != like.slots:
        return f"sent {sorted(reply.message.slots)} where {sorted(like.slots)} was asked for"
    for slot in like.slots:
        given, wanted = getattr(reply.message, slot), getattr(like, slot)
        if not isinstance(given, Tensor) or given.layout != wanted.layout or given.device != wanted.device:
            return f"sent a {slot} that is not a plain tensor"
        if given.shape != wanted.shape:
            return f"sent a {slot} of shape {tuple(given.shape)}, not {tuple(wanted.shape)}"
        if given.dtype != wanted.dtype:
            return f"sent a {slot} of {given.dtype}, not {wanted.dtype}"
        least, most = torch.aminmax(given)
        if not (float(least) >= -LARGEST and float(most) <= LARGEST):
            return f"sent a {slot} that is not finite, or beyond {LARGEST:g}"
    if reply.message.variance is not None and bool((reply.message.variance < 0).any()):
        return "sent a negative variance"
    count = reply.num_examples
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= max_examples:
        return f"claims {count!r} examples (1 to {max_examples:,} are believed)"
    return None


def stack_up(replies: Sequence[Reply]) -> Stack:
    """The messages as rows of one matrix."""
    variances = [reply.message.variance for reply in replies if reply.message.variance is not None]
    return Stack(_pile([reply.message.mean for reply in replies]), _pile(variances) if variances else None)


def _pile(rows: Sequence[Tensor]) -> Tensor:
    """Vectors as the rows of a matrix; those that lie under each other in memory already are not copied."""
    first, size = rows[0], rows[0].numel()
    memory, start = first.untyped_storage().data_ptr(), first.storage_offset()
    for number, row in enumerate(rows):
        place = (row.untyped_storage().data_ptr(), row.storage_offset(), row.stride())
        if place != (memory, start + number * size, (1,)):
            return torch.stack(list(rows))
    return first.as_strided((len(rows), size), (size, 1))


def bound_on(
    norms: Tensor, limit: float | Literal["median", "usual"], before: Tensor | None
) -> tuple[float, Tensor | None]:
    """How long an update may be, and the lengths of the rounds so far if that is what it comes from."""
    if isinstance(limit, float | int):
        return float(limit), None
    middle = norms.quantile(0.5)
    if limit == "median":
        return float(middle), None
    so_far = middle.unsqueeze(0) if before is None else torch.cat([before, middle.unsqueeze(0)])
    bound = USUAL * so_far.quantile(0.5)
    if not bound > 0:  # nobody has moved yet: nothing is usual
        return math.inf, before
    so_far[-1] = middle.clamp(max=bound)
    return float(bound), so_far


def clip(stack: Stack, norms: Tensor, bound: float) -> Stack:
    """Shorten the updates whose norm exceeds the bound; the direction stays."""
    scale = (bound / norms.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)
    return stack._replace(mean=stack.mean * scale.to(stack.mean.dtype).unsqueeze(1))


def by_precision(means: Tensor, variances: Tensor) -> Tensor:
    """Means times precision over the coordinate's median, or its inverse where that is greater than 1.

    So far does a client pull where posteriors are merged by precision; and who claims to know nothing does
    not pass for one that hardly moved. Points stay as they are.
    """
    usual = variances.median(dim=0).values
    ratio = (usual / variances.clamp(min=torch.finfo(variances.dtype).tiny)).clamp(1 / EXTREME, EXTREME)
    return means * torch.where(usual > 0, torch.maximum(ratio, 1 / ratio), 1.0)


def weigh(weigher: Weigher, geometry: Geometry, info: RoundInfo, state: State) -> Weighed:
    """Apply a weighing rule, and do not let a broken rule spoil the model."""
    weighed = weigher.weigh(geometry, info, state)
    weights = weighed.weights
    if weights.shape != (len(geometry),) or not bool(torch.isfinite(weights).all()):
        raise InputError(
            f"weighing rule {type(weigher).__name__} returned weights {weights.tolist()} "
            f"for {len(geometry)} clients in round {info.number}; one finite number each is needed."
        )
    return weighed


def step(state: ServerState, combined: Combined, server: Server, num_parameters: int) -> ServerState:
    """Move the model: parameters with the server's learning rate and momentum, running statistics plainly."""
    change = combined.mean.clone()
    velocity = change[:num_parameters]
    if server.momentum:
        before = torch.zeros_like(velocity) if state.velocity is None else state.velocity
        velocity = server.momentum * before + velocity
    change[:num_parameters] = server.lr * velocity
    message = Message(state.message.mean + change, combined.variance)
    return replace(state, message=message, velocity=velocity if server.momentum else None)


def averaged(before: Message, now: Message, window: int, round: int) -> Message | None:
    """A running mean of the model; over fewer rounds while there are few, so that it does not lag behind.

    The newest model counts with 4/(t + 3) (Shamir & Zhang, 2013: polynomial decay), and at least 1/window.
    """
    if window == 1:
        return None
    share = max(4 / (round + 3), 1 / window)
    mean = torch.lerp(before.mean, now.mean, share)
    if before.variance is None or now.variance is None:
        return Message(mean, now.variance)
    return Message(mean, torch.lerp(before.variance, now.variance, share))
