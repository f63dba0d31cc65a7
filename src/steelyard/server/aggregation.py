"""How the server merges replies, read top to bottom: screen → clip → weigh → combine → step.

Nothing in a reply is trusted: a reply that cannot be used is rejected with the reason (in `screening`, or
for its length here), and the round goes on with the rest. Below a quorum the round is skipped.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.combining import Combiner, ProductCombiner
from steelyard.errors import InputError
from steelyard.layout import Pair
from steelyard.server.lengths import (
    by_precision,
    clip,
    clip_factors,
    clip_limit,
    ordered,
    too_long,
    usual_norm,
    with_median,
)
from steelyard.server.stacking import stack_up
from steelyard.server.statistics import merge_statistics
from steelyard.settings import Server
from steelyard.types import EMPTY, ClientId, Combined, Message, Reply, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.products import ProductGeometry

MAX_SUM_ERROR = 1e-6  # of the sum of weights from 1
MAX_ROUNDED_SUM_ERROR = 1e-4  # of weights in float32 and below, which are then divided by their sum
BELOW_QUORUM = "the round fell below its quorum"


@dataclass(frozen=True, eq=False)
class ServerState:
    """What aggregation keeps between rounds."""

    message: Message
    """The shared model, as it goes down to the clients."""
    weighing: State = field(default_factory=dict)
    velocity: Tensor | None = None
    average: Message | None = None
    """The mean of the models of the last rounds (`server.average`)."""
    medians: Tensor | None = None
    """The median norm of each round so far, [R]; with `server.clip`, at most the limit of its round."""

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
    """The reason for each client whose reply passed the screening and was still not used."""
    skipped: str = ""
    """The reason why no reply was used and the model stayed as it was; empty if it changed."""


class Accepted(NamedTuple):
    """The replies of a round that can be used, in the order of client ids."""

    replies: Sequence[Reply]
    stack: Stack
    geometry: Geometry
    clipped: Tensor | None = None
    """Factors [J] on the products of updates; updates that are not products are clipped in the stack."""


@dataclass(frozen=True, eq=False)
class Aggregator:
    """A weighing rule, a combining rule and the server's settings."""

    weigher: Weigher
    combiner: Combiner
    server: Server
    num_parameters: int
    """The leading coordinates are parameters, the rest are running statistics."""
    variances: Tensor | None = None
    """[S], which of the running statistics are variances: these never become negative."""
    pairs: tuple[Pair, ...] = ()
    """Factors; a rule that merges products also has updates weighed, screened and clipped by them."""

    def init(self, message: Message) -> ServerState:
        return ServerState(message, self.weigher.init())

    def aggregate(
        self, state: ServerState, replies: Sequence[Reply], invited: Sequence[ClientId], round: int
    ) -> Aggregated:
        """Merge the replies of the invited clients that passed the screening, in the order of client ids."""
        if not replies:
            return _skipped(state, {}, BELOW_QUORUM)
        accepted, rejected, medians = self._screen_lengths(replies, state)
        if len(accepted.replies) < max(1, self.server.quorum * len(invited) - 1e-9):
            return _skipped(replace(state, medians=medians), rejected, BELOW_QUORUM)
        norms = accepted.geometry.norms
        if self.server.clip is not None:
            limit = clip_limit(norms, self.server.clip, state.medians)
            medians = with_median(state.medians, ordered(norms), limit)
            if bool((norms > limit).any()):
                accepted = self._clipped(accepted, limit, state)
        moved, weighed, evidence = self._merge(state, accepted, round)
        if not is_finite(moved.message):
            return _skipped(state, rejected, "the merged model was not finite")
        moved = replace(moved, medians=medians)
        clients = tuple(reply.client for reply in accepted.replies)
        return Aggregated(moved, clients, weighed.weights, norms, evidence, rejected)

    @property
    def _product_merger(self) -> ProductCombiner | None:
        """The combining rule, if it merges products: what is weighed is what is merged."""
        return self.combiner if isinstance(self.combiner, ProductCombiner) else None

    def _accepted(self, replies: Sequence[Reply], stack: Stack, state: ServerState) -> Accepted:
        updates = stack.mean[:, : self.num_parameters]
        if self._product_merger is None:
            paired = self.weigher.needs_products and self.server.clip is None
            return Accepted(replies, stack, Geometry(updates, paired))
        start = state.message.mean[: self.num_parameters]
        return Accepted(replies, stack, ProductGeometry(updates, start, self.pairs))

    def _clipped(self, accepted: Accepted, limit: float, state: ServerState) -> Accepted:
        """Updates longer than the limit are shortened to it: vectors or, where they are merged, products."""
        norms = accepted.geometry.norms
        if self._product_merger is None:
            return self._accepted(accepted.replies, clip(accepted.stack, norms, limit), state)
        factors = clip_factors(norms, limit)
        return accepted._replace(geometry=accepted.geometry.scaled(factors), clipped=factors)

    def _screen_lengths(
        self, replies: Sequence[Reply], state: ServerState
    ) -> tuple[Accepted, dict[ClientId, str], Tensor | None]:
        """The replies without those far longer than usual, the reasons for these, and the medians so far.

        A round adds its median even if all of it is too long: a norm that stays becomes the usual one.
        """
        accepted, ratio = self._accepted(replies, stack_up(replies), state), self.server.max_norm_ratio
        medians = state.medians
        norms = accepted.geometry.norms
        lengths = ordered(norms)
        usual = usual_norm(lengths, medians)
        medians = with_median(medians, lengths, ratio * usual)
        if lengths[-1] <= ratio * usual:
            return accepted, {}, medians
        clients = [reply.client for reply in replies]
        long = too_long(clients, norms, usual, ratio)
        kept = [place for place, client in enumerate(clients) if client not in long]
        mean, variance = accepted.stack
        stack = Stack(mean[kept], None if variance is None else variance[kept])
        return self._accepted([replies[place] for place in kept], stack, state), long, medians

    def _merge(
        self, state: ServerState, accepted: Accepted, round: int
    ) -> tuple[ServerState, Weighed, Mapping[str, Tensor]]:
        """The state after the round, the weights, and the evidence for them."""
        replies, stack, geometry, _ = accepted
        if self.server.geometry == "precision" and stack.variance is not None:
            pulls = by_precision(stack.mean, stack.variance)
            geometry = Geometry(pulls[:, : self.num_parameters])
        counts = torch.tensor([reply.num_examples for reply in replies], dtype=torch.float64)
        info = RoundInfo(round, tuple(reply.client for reply in replies), counts)
        weighed = weigh(self.weigher, geometry, info, state.weighing)
        evidence, server = weighed.evidence, self.server
        if self._product_merger is None:
            merged = self.combiner.combine_scaled(stack, weighed.weights, weighed.scale)
            combined = changeable(merged, stack, self.combiner)
        else:
            combined, error = self._merge_products(self._product_merger, state, accepted, weighed)
            evidence, server = {**evidence, "rank_error": error}, replace(server, lr=1.0)
        statistics = combined.mean[self.num_parameters :]
        if len(statistics):
            statistics, cut = self._statistics(state, stack, weighed.weights)
            evidence = {**evidence, "statistics_cut": cut}
        moved = step(state, combined, server, statistics)
        average = averaged(state.evaluated_model, moved.message, self.server.average, round)
        return replace(moved, weighing=weighed.state, average=average), weighed, evidence

    def _merge_products(
        self, merger: ProductCombiner, state: ServerState, accepted: Accepted, weighed: Weighed
    ) -> tuple[Combined, Tensor]:
        """The change of the factors, and the error of their rank. All factors on updates are on products."""
        factors = self.server.lr * weighed.weights
        for each in (weighed.scale, accepted.clipped):
            factors = factors if each is None else factors * each
        updates, start = accepted.stack.mean, state.message.mean
        merged = merger.merge(updates, factors, start, self.pairs)
        return Combined(merged.change), merged.rank_error

    def _statistics(self, state: ServerState, stack: Stack, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The merged change of the running statistics, and the share of each client's that was cut off."""
        changes = stack.mean[:, self.num_parameters :]
        merged, cut = merge_statistics(changes, weights, self.server.statistics)
        if self.variances is not None:
            start = state.message.mean[self.num_parameters :]
            merged = torch.where(self.variances, torch.maximum(merged, -start), merged)
        return merged, cut


def _skipped(state: ServerState, rejected: Mapping[ClientId, str], reason: str) -> Aggregated:
    none = torch.zeros(0, dtype=torch.float64)
    return Aggregated(state, (), none, none, EMPTY, rejected, reason)


def weigh(weigher: Weigher, geometry: Geometry, info: RoundInfo, state: State) -> Weighed:
    """Apply a weighing rule and check its weights."""
    weighed = weigher.weigh(geometry, info, state)
    if not isinstance(weighed, Weighed) or not isinstance(weighed.weights, Tensor):
        raise InputError(
            f"weighing rule {type(weigher).__name__} must return Weighed(weights), with a tensor of weights, "
            f"not {shorten(repr(weighed), 100)}."
        )
    weights = weighed.weights.double()
    if weights.shape != (len(geometry),) or not bool(torch.isfinite(weights).all()):
        raise InputError(
            f"weighing rule {type(weigher).__name__} returned weights {weights.tolist()} "
            f"for {len(geometry)} clients in round {info.number}; one finite number each is needed."
        )
    exact = weighed.weights.dtype == torch.float64
    if abs(float(weights.sum()) - 1) > (MAX_SUM_ERROR if exact else MAX_ROUNDED_SUM_ERROR):
        raise InputError(
            f"weighing rule {type(weigher).__name__} returned weights with the sum {float(weights.sum()):g} "
            f"in round {info.number}; they must sum to 1."
        )
    return weighed if exact else weighed._replace(weights=weights / weights.sum())


def step(state: ServerState, combined: Combined, server: Server, statistics: Tensor) -> ServerState:
    """Move the model: parameters with the server's learning rate and momentum, and running statistics, which
    come last in it, without.

    The merged vector becomes the model: new memory for another one takes as long as a read of all updates.
    """
    moved, velocity = combined.mean, None
    count = len(moved) - len(statistics)
    change = moved[:count]
    if server.momentum:
        velocity = torch.zeros_like(change) if state.velocity is None else server.momentum * state.velocity
        change.copy_(velocity.add_(change))
    if server.lr != 1:
        change *= server.lr
    moved[count:] = statistics
    moved += state.message.mean
    return replace(state, message=Message(moved, combined.variance), velocity=velocity)


def changeable(combined: Combined, stack: Stack, combiner: Combiner) -> Combined:
    """What a rule has merged, in memory that may be changed.

    A rule of the user's own may keep what it returns, and any may return one of the updates.
    """
    starts = {each.untyped_storage().data_ptr() for each in stack if each is not None}
    own = not type(combiner).__module__.startswith("steelyard.")
    if own or combined.mean.untyped_storage().data_ptr() in starts:
        return combined._replace(mean=combined.mean.clone())
    return combined


def is_finite(message: Message) -> bool:
    """Whether all values of a model are finite."""
    limits = (limit for slot in message if slot is not None for limit in torch.aminmax(slot))
    return all(math.isfinite(float(limit)) for limit in limits)


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
