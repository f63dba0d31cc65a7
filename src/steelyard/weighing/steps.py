"""What the iterative rules have in common: where they start, when they stop, and what they say of it."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

TINY = torch.finfo(torch.float64).tiny


class Settled(NamedTuple):
    """Where an iteration ended."""

    weights: Tensor
    iterations: int
    converged: bool

    @property
    def evidence(self) -> dict[str, Tensor]:
        """Two numbers of the round: a rule that did not converge must not keep it to itself."""
        return {
            "iterations": torch.tensor(float(self.iterations)),
            "converged": torch.tensor(float(self.converged)),
        }


def settle(step: Callable[[Tensor], Tensor], start: Tensor, iterations: int, tolerance: float) -> Settled:
    """Repeat a step on the weights until none of them moves by more than the tolerance."""
    weights = start
    for number in range(1, iterations + 1):
        following = step(weights)
        moved = float((following - weights).abs().max())
        weights = following
        if moved <= tolerance:
            return Settled(weights, number, True)
    return Settled(weights, iterations, False)


def normalised(scores: Tensor) -> Tensor:
    """Weights that sum to 1; equal ones if every score is 0."""
    largest = scores.max()
    if not bool(largest > 0):
        return torch.full_like(scores, 1 / len(scores))
    scores = scores / largest
    return scores / scores.sum()


def sample_prior(counts: Tensor, power: float, cap: float) -> Tensor:
    """n_j^power, with n_j at most `cap` times the median: a client can claim any count. Sums to 1."""
    bounded = counts.clamp(max=cap * float(counts.quantile(0.5)))
    return normalised(bounded**power)


def bounded_lengths(norms: Tensor, bound: float) -> Tensor:
    """What to multiply weights by so that nobody moves further than `bound` × the median; 0: no bound."""
    limit = bound * norms.sort().values[(len(norms) - 1) // 2]
    return torch.where((bound > 0) & (norms > limit), limit / norms.clamp(min=TINY), 1.0)


def typical(values: Tensor) -> Tensor:
    """The median, or the mean where more than half are 0."""
    ordered = values.sort().values  # several times as quick as quantile
    median = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
    return median if bool(median > 0) else values.mean()


def inverse(values: Tensor, floor: float) -> Tensor:
    """1/v_j up to a factor, with v_j at least `floor` times the typical value."""
    scale = typical(values)
    if not bool(scale > 0):
        return torch.ones_like(values)
    return 1 / (values / scale).clamp(min=floor)
