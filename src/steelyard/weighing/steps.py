"""Helpers that several rules share: fixed-point iteration, normalisation, robust scales."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

TINY = torch.finfo(torch.float64).tiny


class FixedPoint(NamedTuple):
    """The result of an iteration."""

    weights: Tensor
    iterations: int
    converged: bool

    @property
    def evidence(self) -> dict[str, Tensor]:
        """Two numbers per round, so that the record shows when a rule did not converge."""
        return {
            "iterations": torch.tensor(float(self.iterations)),
            "converged": torch.tensor(float(self.converged)),
        }


def fixed_point(
    step: Callable[[Tensor], Tensor], start: Tensor, iterations: int, tolerance: float
) -> FixedPoint:
    """Repeat `step` on the weights until none of them changes by more than `tolerance`."""
    weights = start
    for number in range(1, iterations + 1):
        following = step(weights)
        change = float((following - weights).abs().max())
        weights = following
        if change <= tolerance:
            return FixedPoint(weights, number, True)
    return FixedPoint(weights, iterations, False)


def normalised(scores: Tensor) -> Tensor:
    """Scale scores to sum to 1; equal weights if all scores are 0."""
    largest = scores.max()
    if not bool(largest > 0):
        return torch.full_like(scores, 1 / len(scores))
    scores = scores / largest
    return scores / scores.sum()


def sample_prior(counts: Tensor, power: float, cap: float) -> Tensor:
    """n_j^power, scaled to sum to 1. Claimed counts n_j are limited to `cap` times their median."""
    bounded = counts.clamp(max=cap * float(counts.quantile(0.5)))
    return normalised(bounded**power)


def bounded_lengths(norms: Tensor, bound: float) -> Tensor:
    """Factors on the weights that limit each update's norm to `bound` × the median norm; 0 means no limit."""
    limit = bound * norms.sort().values[(len(norms) - 1) // 2]
    return torch.where((bound > 0) & (norms > limit), limit / norms.clamp(min=TINY), 1.0)


def typical(values: Tensor) -> Tensor:
    """The median, or the mean if the median is 0."""
    ordered = values.sort().values  # several times faster than quantile
    median = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
    return median if bool(median > 0) else values.mean()


def inverse(values: Tensor, floor: float) -> Tensor:
    """1/v_j up to a common factor, with v_j at least `floor` times the typical value."""
    scale = typical(values)
    if not bool(scale > 0):
        return torch.ones_like(values)
    return 1 / (values / scale).clamp(min=floor)
