"""BA-BFL: Gaussian posteriors are merged into their barycentre, coordinate by coordinate.

The functions take means and variances [J, K] and weights [J] that sum to 1, in float64, and give back both
moments. A mean Σ w μ_k takes the weights as they are. Variances, and means by precision or density, have no
use for negative weights: those are 0 there, and the others are scaled to sum to 1.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steelyard.combining.alpha import moments_of_power_mean
from steelyard.combining.base import Combiner
from steelyard.errors import InputError
from steelyard.types import Combined, Stack

Moments = tuple[Tensor, Tensor]
"""Mean and variance, [K]."""

BLOCK = 1 << 17  # numbers of a float64 copy, 1 MB


def eaa(means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
    """σ² = Σ w σ_k²."""
    return weights @ means, positive(weights) @ variances


def gaa(means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
    """σ² = Σ w² σ_k²: that of a weighted sum of independent variables."""
    return weights @ means, positive(weights).square() @ variances


def aalv(means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
    """log σ² = Σ w log σ_k²."""
    logs = torch.xlogy(positive(weights).unsqueeze(1), variances)  # 0 for a weight of 0, whatever σ is
    return weights @ means, logs.sum(dim=0).exp()


def rklb(means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
    """Eq. 8: 1/σ² = Σ w/σ_k², μ = σ² Σ w μ_k/σ_k². In the limit, clients without variance alone count."""
    shares = positive(weights).unsqueeze(1)
    least = variances.where(shares > 0, math.inf).amin(dim=0)
    precisions = shares * torch.where(variances > least, least / variances, 1.0)  # in units of the greatest
    total = precisions.sum(dim=0)
    return (precisions * means).sum(dim=0) / total, least / total


def wb(means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
    """Eq. 9: σ = Σ w σ_k."""
    return weights @ means, (positive(weights) @ variances.sqrt()).square()


def forward_kl(means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
    """The moments of the mixture: σ² = Σ w (σ_k² + (μ_k − μ)²)."""
    mean = weights @ means
    return mean, positive(weights) @ (variances + (means - mean).square())


def alpha_barycenter(means: Tensor, variances: Tensor, weights: Tensor, alpha: float) -> Moments:
    """The moments of Theorem 1's barycentre; in closed form for α = 0 (eq. 8) and α = 1."""
    if alpha < 1e-8:  # float64 does not tell it from 0
        return rklb(means, variances, weights)
    if alpha == 1:
        return forward_kl(means, variances, weights)
    heard = weights > 0
    return moments_of_power_mean(means[heard], variances[heard], positive(weights)[heard], alpha)


def positive(weights: Tensor) -> Tensor:
    """Without the negative ones, summing to 1."""
    kept = weights.clamp(min=0.0)
    return kept / kept.sum()


def held(variances: Tensor, hold: float) -> Tensor:
    """Variances within ×/÷ `hold` of their coordinate's median over the clients."""
    if math.isinf(hold):
        return variances
    ordered = variances.sort(dim=0).values
    median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return variances.clamp(median / hold, median * hold)


@dataclass(frozen=True, kw_only=True)
class Barycenter(Combiner):
    """A rule that merges Gaussians. A coordinate in which nobody has variance is a point: Σ w μ_k.

    `hold` bounds what a client can claim: each variance is first held within ×/÷ `hold` of the coordinate's
    median, so that nobody wins by certainty or drowns the others in ignorance. The default is as published.
    """

    hold: float = math.inf

    needs: ClassVar[frozenset[str]] = frozenset({"mean", "variance"})

    def __post_init__(self) -> None:
        if not self.hold >= 1:
            raise InputError(
                f"combining rule {type(self).__name__}: hold is a factor of at least 1, not {self.hold}."
            )

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        if stack.variance is None or not bool(weights.sum() > 0):
            raise InputError(
                f"combining rule {type(self).__name__} needs variances, and weights whose sum is positive."
            )
        shares = weights.double() / weights.double().sum()
        mean, variance = torch.empty_like(stack.mean[0]), torch.empty_like(stack.variance[0])
        width = max(1, BLOCK // len(shares))
        for start in range(0, len(mean), width):
            part = slice(start, start + width)
            means = stack.mean[:, part].double()
            variances = held(stack.variance[:, part].double(), self.hold)
            centre, spread = self.merge(means, variances, shares)
            point = variances[shares > 0].amax(dim=0) == 0
            mean[part] = torch.where(point, shares @ means, centre)
            variance[part] = spread.masked_fill(point, 0.0).clamp(max=torch.finfo(variance.dtype).max)
        return Combined(mean, variance)

    @abstractmethod
    def merge(self, means: Tensor, variances: Tensor, weights: Tensor) -> Moments: ...


@dataclass(frozen=True)
class Eaa(Barycenter):
    """Empirical arithmetic aggregation: the mean of the means and of the variances."""

    merge = staticmethod(eaa)


@dataclass(frozen=True)
class Gaa(Barycenter):
    """Gaussian arithmetic aggregation: the weighted sum of independent variables, whose variance shrinks."""

    merge = staticmethod(gaa)


@dataclass(frozen=True)
class Aalv(Barycenter):
    """Arithmetic aggregation with log variance: the geometric mean of the variances."""

    merge = staticmethod(aalv)


@dataclass(frozen=True)
class Rklb(Barycenter):
    """The reverse-KL barycentre (eq. 8): means by precision, and the mean precision."""

    merge = staticmethod(rklb)


@dataclass(frozen=True)
class Wb(Barycenter):
    """The Wasserstein-2 barycentre (eq. 9): the mean of the means and of the standard deviations."""

    merge = staticmethod(wb)


@dataclass(frozen=True)
class ForwardKl(Barycenter):
    """The forward-KL barycentre: the mean and the variance of the mixture, disagreement included."""

    merge = staticmethod(forward_kl)


@dataclass(frozen=True)
class Alpha(Barycenter):
    """The mean and the variance of the α-barycentre (Theorem 1): from `rklb` at 0 to `forward-kl` at 1.

    α is the paper's: the density is ∝ (Σ w p_k^α)^(1/α), and minimises Σ w D_α(p_k‖q).
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise InputError(f"combining rule 'alpha': alpha is a number from 0 to 1, not {self.alpha}.")

    def merge(self, means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
        return alpha_barycenter(means, variances, weights, self.alpha)
