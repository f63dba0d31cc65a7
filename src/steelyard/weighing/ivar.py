"""Inverse-variance weighting (Nguyen et al., "Probabilistic Inference for Learning from Untrusted Sources").

Each update is a noisy observation of an unknown truth, x_j ~ N(y, σ_j² I), with a noise level of the client's
own that is inferred together with y. All of it happens on inner products of the updates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.memory import recall, remember
from steelyard.weighing.steps import Settled, inverse, normalised, sample_prior, settle, typical


@dataclass(frozen=True)
class Past:
    """A client's noise in earlier rounds, relative to the typical noise of each: rounds differ in scale."""

    total: Tensor
    rounds: Tensor
    known: bool
    """Whether there is any past at all."""

    @classmethod
    def of(cls, state: State, round: RoundInfo, memory: float) -> "Past":
        known = recall(state, "noise", round.clients, torch.zeros(2, dtype=torch.float64))
        return cls(memory * known[:, 0], memory * known[:, 1], memory > 0 and bool(known.any()))

    def mean_with(self, noise: Tensor) -> Tensor:
        """σ_j²: the mean over this and earlier rounds (eqs. 7 and 13)."""
        if not self.known:
            return noise
        return (self.total * typical(noise) + noise) / (self.rounds + 1)

    def updated(self, state: State, round: RoundInfo, noise: Tensor) -> State:
        scale = typical(noise)
        relative = noise / scale if bool(scale > 0) else torch.ones_like(noise)
        rows = torch.stack([self.total + relative, self.rounds + 1], dim=1)
        return remember(state, round.clients, noise=rows)


@dataclass(frozen=True)
class IvarMle(Weigher):
    """IVAR by maximum likelihood: a_j ∝ 1/σ_j², σ_j² = ‖x_j − y‖²/K (Algorithm 1).

    The likelihood has no bound where y meets one client's update: `floor`, times the typical variance, keeps
    a single client from becoming the consensus. `memory` is how much of the past counts (1: all rounds alike,
    0: this round only), `samples` the power of n_j in the weights, with n_j at most `cap` × the median.
    Counts come in once, at the end: inside the iteration they would draw y to whoever claims more than the
    others, whose variance then shrinks until it alone counts.
    """

    samples: float = 0.0
    cap: float = 3.0
    memory: float = 1.0
    floor: float = 1e-3
    iterations: int = 20
    tolerance: float = 1e-9

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        prior, equal = (sample_prior(round.num_examples, power, self.cap) for power in (self.samples, 0.0))
        past = Past.of(state, round, self.memory)

        def step(weights: Tensor) -> Tensor:
            variance = past.mean_with(geometry.distances(weights) / geometry.size)
            return normalised(inverse(variance, self.floor))

        settled = settle(step, equal, self.iterations, self.tolerance)
        noise = geometry.distances(settled.weights) / geometry.size
        evidence = {"variance": past.mean_with(noise), **settled.evidence}
        return Weighed(normalised(prior * settled.weights), past.updated(state, round, noise), evidence)


@dataclass(frozen=True)
class IvarVb(Weigher):
    """IVAR by variational Bayes: a prior on the truth and its uncertainty keep the variances from collapsing.

    Eqs. 10 to 13. The weights are normalised: with the zero-mean prior they would sum to less than 1 and slow
    the model down. `memory`, `samples` and `cap` are those of ivar-mle.
    """

    samples: float = 0.0
    cap: float = 3.0
    memory: float = 1.0
    iterations: int = 100
    tolerance: float = 1e-9

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        prior = sample_prior(round.num_examples, self.samples, self.cap)
        past = Past.of(state, round, self.memory)
        settled, noise = infer(geometry, past, self.iterations, self.tolerance)
        evidence = {"variance": past.mean_with(noise), **settled.evidence}
        return Weighed(normalised(prior * settled.weights), past.updated(state, round, noise), evidence)


def infer(geometry: Geometry, past: Past, iterations: int, tolerance: float) -> tuple[Settled, Tensor]:
    """The posterior mean's weights on the updates, which sum to at most 1, and each client's noise."""
    size = geometry.size
    equal = torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64)
    tau = geometry.gram.diagonal().mean() / size  # τ², the prior's variance
    if not bool(tau > 0):
        return Settled(equal, 0, True), torch.zeros_like(equal)
    noise = torch.full_like(equal, float(tau))

    def step(weights: Tensor) -> Tensor:
        nonlocal tau, noise
        precision = 1 / past.mean_with(noise)
        uncertainty = 1 / (1 / tau + precision.sum())  # λ, eq. 10
        following = uncertainty * precision  # eq. 11
        square = (following @ geometry.gram @ following).clamp(min=0.0)  # rounding can take it below 0
        tau = uncertainty + square / size  # eq. 12
        noise = uncertainty + geometry.distances(following) / size  # eq. 13
        return following

    return settle(step, equal, iterations, tolerance), noise
