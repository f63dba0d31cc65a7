"""Helpers that several rules share: fixed-point iteration, normalisation, robust scales."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

TINY = torch.finfo(torch.float64).tiny
MIN_EIGENVALUE = 1e-15  # of a matrix to invert, as a share of its largest: below it is rounding


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
    step: Callable[[Tensor], Tensor],
    start: Tensor,
    iterations: int,
    tolerance: float,
    lengths: Tensor | float = 1.0,
) -> FixedPoint:
    """Repeat `step` on the weights until none of them changes by more than `tolerance`.

    With `lengths` [J] (see `relative_lengths`), a change counts by how far it moves the merged update.
    """
    weights = start
    for number in range(1, iterations + 1):
        following = step(weights)
        change = float(((following - weights).abs() * lengths).max())
        weights = following
        if change <= tolerance:
            return FixedPoint(weights, number, True)
    return FixedPoint(weights, iterations, False)


def extrapolated(before: Tensor, first: Tensor, second: Tensor, longest: float) -> Tensor:
    """Where two steps over positive numbers, from `before` to `first` to `second`, lead to.

    Steps that shrink by a common factor end where their sum does: the logarithms of the numbers are continued
    that far (SQUAREM; Varadhan and Roland, 2008), but not further than `longest` steps.
    """
    change = (first / before).log()
    bend = (second / first).log() - change
    length = (change.norm() / bend.norm().clamp(min=TINY)).clamp(1.0, longest)
    reached: Tensor = before * (2 * length * change + length.square() * bend).exp()
    return reached


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


def lower_median(values: Tensor) -> Tensor:
    """The median; the lower of the two in the middle where there are two."""
    return values.sort().values[(len(values) - 1) // 2]


def shortened(norms: Tensor, limit: Tensor) -> Tensor:
    """Factors up to 1 that bring norms down to a limit, [J]."""
    return torch.where(norms > limit, limit / norms.clamp(min=TINY), 1.0)


def typical(values: Tensor) -> Tensor:
    """The median, or the mean if the median is 0."""
    ordered = values.sort().values  # several times faster than quantile
    median = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
    return median if bool(median > 0) else values.mean()


def relative_lengths(norms: Tensor) -> Tensor:
    """Norms in median norms, at least 1, [J]."""
    return (norms / lower_median(norms).clamp(min=TINY)).clamp(min=1.0)


def inverse(values: Tensor, floor: float) -> Tensor:
    """1/v_j up to a common factor, with v_j at least `floor` times the typical value."""
    scale = typical(values)
    if not bool(scale > 0):
        return torch.ones_like(values)
    return 1 / (values / scale).clamp(min=floor)


def inverted(matrix: Tensor) -> Tensor:
    """The inverse of a positive definite matrix; if rounding has made it singular, of the nearest that is."""
    inverse: Tensor
    inverse, failed = torch.linalg.inv_ex(matrix)
    if not int(failed):
        return inverse
    values, vectors = torch.linalg.eigh(matrix)
    least = (MIN_EIGENVALUE * values[-1]).clamp(min=TINY)
    inverse = (vectors / values.clamp(min=least)) @ vectors.T
    return inverse
