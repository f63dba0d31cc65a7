"""Inverse-variance weighting (Nguyen et al., "Probabilistic Inference for Learning from Untrusted Sources").

Each update is a noisy observation of an unknown truth, x_j ~ N(y, σ_j² I). The noise level σ_j² of each
client is inferred together with y, from inner products of the updates only.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.errors import COUNT, NOT_NEGATIVE, SHARE, UP_TO_INFINITY, check_settings
from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import EXAMPLES, Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.memory import recall, remember
from steelyard.weighing.steps import (
    FixedPoint,
    extrapolated,
    fixed_point,
    inverse,
    normalised,
    relative_lengths,
    sample_prior,
    typical,
)

VARIANCE = Reason(
    "variance",
    "variance",
    less="its updates were noisier than usual",
    more="its updates were less noisy than usual",
    power=-1.0,
    relative=True,
)
MAX_RELATIVE_NOISE = 1e12  # of one round, in typical variances: an update a million times as long as usual
PLAIN_STEPS = 100  # of ivar-vb, before steps are extrapolated
MIN_VARIANCE = 1e-12  # of extrapolated variances, as a share of the updates' mean square


@dataclass(frozen=True)
class NoiseHistory:
    """Each client's noise in earlier rounds, relative to the round's typical noise because scales differ."""

    total: Tensor
    """[J], the sum over a client's earlier rounds."""
    rounds: Tensor
    """[J], the number of these rounds; earlier ones count less if `memory` is below 1."""
    known: bool
    """Whether any client has earlier rounds."""

    @classmethod
    def of(cls, state: State, round: RoundInfo, memory: float) -> "NoiseHistory":
        rows = recall(state, "noise", round.clients, torch.zeros(2, dtype=torch.float64))
        return cls(memory * rows[:, 0], memory * rows[:, 1], memory > 0 and bool(rows.any()))

    def mean_with(self, noise: Tensor) -> Tensor:
        """σ_j²: the mean over this and earlier rounds (eqs. 7 and 13)."""
        if not self.known:
            return noise
        return (self.total * typical(noise) + noise) / (self.rounds + 1)

    def updated(self, state: State, round: RoundInfo, noise: Tensor) -> State:
        scale = typical(noise)
        relative = noise / scale if bool(scale > 0) else torch.ones_like(noise)
        relative = relative.clamp(max=MAX_RELATIVE_NOISE)
        rows = torch.stack([self.total + relative, self.rounds + 1], dim=1)
        return remember(state, round.clients, noise=rows)


@dataclass(frozen=True)
class IvarMle(Weigher):
    """IVAR by maximum likelihood: a_j ∝ 1/σ_j², σ_j² = ‖x_j − y‖²/K (Algorithm 1).

    The likelihood is unbounded where y equals one client's update. Variances are therefore at least `floor`
    times the typical variance, so that no single client takes all the weight. `memory` is the discount of
    earlier rounds (1: all rounds count equally, 0: this round only). `samples` is the power of n_j in the
    weights, with n_j at most `cap` × the median count. Counts are applied once, at the end: inside the
    iteration they would pull y towards the client with the largest claim, whose variance would then shrink
    until only this client counts.
    """

    samples: float = 0.0
    cap: float = 3.0
    memory: float = 1.0
    floor: float = 1e-3
    iterations: int = 20
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        where = "weighing rule 'ivar-mle': "
        check_settings(where, self, samples=NOT_NEGATIVE, cap=UP_TO_INFINITY, memory=SHARE, floor=SHARE)
        check_settings(where, self, iterations=COUNT, tolerance=NOT_NEGATIVE)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return (VARIANCE, EXAMPLES) if self.samples else (VARIANCE,)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        prior, equal = (sample_prior(round.num_examples, power, self.cap) for power in (self.samples, 0.0))
        history = NoiseHistory.of(state, round, self.memory)

        def step(weights: Tensor) -> Tensor:
            variance = history.mean_with(geometry.distances(weights) / geometry.size)
            return normalised(inverse(variance, self.floor))

        lengths = relative_lengths(geometry.norms)
        result = fixed_point(step, equal, self.iterations, self.tolerance, lengths)
        noise = geometry.distances(result.weights) / geometry.size
        evidence = {"variance": history.mean_with(noise), **result.evidence}
        return Weighed(normalised(prior * result.weights), history.updated(state, round, noise), evidence)


@dataclass(frozen=True)
class IvarVb(Weigher):
    """IVAR by variational Bayes: the prior and the uncertainty of the truth keep variances from collapsing.

    Eqs. 10 to 13, until they converge. With few clients or coordinates that uncertainty does not suffice, so
    variances are at least `floor` times the typical one, as in ivar-mle. The weights are normalised, because
    with the zero-mean prior they sum to less than 1, which would shrink every step. `memory`, `samples` and
    `cap` are as in ivar-mle.
    """

    samples: float = 0.0
    cap: float = 3.0
    memory: float = 1.0
    floor: float = 1e-3
    iterations: int = 2000
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        where = "weighing rule 'ivar-vb': "
        check_settings(where, self, samples=NOT_NEGATIVE, cap=UP_TO_INFINITY, memory=SHARE, floor=SHARE)
        check_settings(where, self, iterations=COUNT, tolerance=NOT_NEGATIVE)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return (VARIANCE, EXAMPLES) if self.samples else (VARIANCE,)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        prior = sample_prior(round.num_examples, self.samples, self.cap)
        history = NoiseHistory.of(state, round, self.memory)
        result, noise = infer(geometry, history, self.iterations, self.tolerance, self.floor)
        evidence = {"variance": history.mean_with(noise), **result.evidence}
        return Weighed(normalised(prior * result.weights), history.updated(state, round, noise), evidence)


def infer(
    geometry: Geometry, history: NoiseHistory, iterations: int, tolerance: float, floor: float = 0.0
) -> tuple[FixedPoint, Tensor]:
    """The weights of the posterior mean on the updates, which sum to at most 1, and each client's noise.

    Where a few clients are far less noisy than the rest, the steps become tiny long before the end, so from
    step `PLAIN_STEPS` on they are extrapolated.
    """
    size = geometry.size
    equal = torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64)
    tau = geometry.gram.diagonal().mean() / size  # τ², the prior's variance
    if not bool(tau > 0):
        return FixedPoint(equal, 0, True), torch.zeros_like(equal)
    noise, smallest = torch.full_like(equal, float(tau)), MIN_VARIANCE * float(tau)

    def step(_: Tensor) -> Tensor:
        nonlocal tau, noise
        precision = 1 / history.mean_with(noise)
        uncertainty = 1 / (1 / tau + precision.sum())  # λ, eq. 10
        following = uncertainty * precision  # eq. 11
        square = (following @ geometry.gram @ following).clamp(min=0.0)  # rounding can make it negative
        tau = uncertainty + square / size  # eq. 12
        noise = uncertainty + geometry.distances(following) / size  # eq. 13
        if floor:
            noise = noise.clamp(min=floor * float(typical(noise)))
        return following

    plain, lengths = min(iterations, PLAIN_STEPS), relative_lengths(geometry.norms)
    result = fixed_point(step, equal, plain, tolerance, lengths)
    if result.converged or plain == iterations:
        return result, noise
    longest, residual = 4.0, math.inf

    def long_step(weights: Tensor) -> Tensor:
        nonlocal tau, noise, longest, residual
        start = torch.cat([noise, tau.view(1)])
        step(weights)
        first = torch.cat([noise, tau.view(1)])
        step(weights)
        second = torch.cat([noise, tau.view(1)])
        before, residual = residual, float((second / first).log().abs().max())
        longest = 2 * longest if residual < before else 1.0
        reached = extrapolated(start, first, second, longest)
        if bool((reached > smallest).all()):
            noise, tau = reached[:-1], reached[-1]
        return step(weights)

    result = fixed_point(long_step, result.weights, (iterations - plain) // 3, tolerance, lengths)
    return result._replace(iterations=plain + 3 * result.iterations), noise
