"""BA-BFL: merge Gaussian posteriors into their barycentre, coordinate by coordinate.

Σ w μ_k uses the weights as they are. Variances, and means that depend on precisions or densities, cannot use
negative weights: these are set to 0 there, and the others are scaled to sum to 1.
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

BLOCK_NUMBERS = 1 << 17  # float64 numbers that are copied at a time, 1 MB
MIN_ALPHA = 1e-8  # float64 cannot tell a smaller α from 0


def nonnegative(weights: Tensor) -> Tensor:
    """The weights with negative ones set to 0, scaled to sum to 1."""
    clamped = weights.clamp(min=0.0)
    return clamped / clamped.sum()


def limit_variances(variances: Tensor, ratio: float) -> Tensor:
    """Clamp variances [J, K] to within a factor of `ratio` of their coordinate's median over the clients."""
    if math.isinf(ratio):
        return variances
    ordered = variances.sort(dim=0).values
    median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return variances.clamp(median / ratio, median * ratio)


@dataclass(frozen=True, kw_only=True)
class Barycenter(Combiner):
    """A rule that merges Gaussians. Where all clients with weight have variance 0, the mean is Σ w μ_k.

    `variance_ratio_limit` bounds the effect of a false claim of certainty or of ignorance: each variance is
    first clamped to within this factor of its coordinate's median. The default, as published, is no limit.
    """

    variance_ratio_limit: float = math.inf

    needs: ClassVar[frozenset[str]] = frozenset({"mean", "variance"})

    def __post_init__(self) -> None:
        if not self.variance_ratio_limit >= 1:
            raise InputError(
                f"combining rule {type(self).__name__}: variance_ratio_limit must be at least 1, "
                f"not {self.variance_ratio_limit}."
            )

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        if stack.variance is None or not bool(weights.sum() > 0):
            raise InputError(
                f"combining rule {type(self).__name__} needs variances, and weights whose sum is positive."
            )
        shares = weights.double() / weights.double().sum()
        mean, variance = torch.empty_like(stack.mean[0]), torch.empty_like(stack.variance[0])
        width = max(1, BLOCK_NUMBERS // len(shares))
        for start in range(0, len(mean), width):
            block = slice(start, start + width)
            means = stack.mean[:, block].double()
            variances = limit_variances(stack.variance[:, block].double(), self.variance_ratio_limit)
            merged_mean, merged_variance = self.merge(means, variances, shares)
            point = variances[shares > 0].amax(dim=0) == 0
            mean[block] = torch.where(point, shares @ means, merged_mean)
            merged_variance = merged_variance.masked_fill(point, 0.0)
            variance[block] = merged_variance.clamp(max=torch.finfo(variance.dtype).max)
        return Combined(mean, variance)

    @abstractmethod
    def merge(self, means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
        """Both moments [K] from means and variances [J, K] and weights [J] that sum to 1, all float64."""


class MeanOfMeans(Barycenter):
    """A rule whose mean is Σ w μ_k and whose variance does not depend on the means."""

    def merge(self, means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
        return weights @ means, self.variance(variances, nonnegative(weights))

    @abstractmethod
    def variance(self, variances: Tensor, weights: Tensor) -> Tensor:
        """σ² [K] from variances [J, K] and weights [J] that are not negative and sum to 1."""


@dataclass(frozen=True)
class Eaa(MeanOfMeans):
    """Empirical arithmetic aggregation, the mean of the variances: σ² = Σ w σ_k²."""

    def variance(self, variances: Tensor, weights: Tensor) -> Tensor:
        return weights @ variances


@dataclass(frozen=True)
class Gaa(MeanOfMeans):
    """Gaussian arithmetic aggregation, the variance of a sum of independent variables: σ² = Σ w² σ_k²."""

    def variance(self, variances: Tensor, weights: Tensor) -> Tensor:
        return weights.square() @ variances


@dataclass(frozen=True)
class Aalv(MeanOfMeans):
    """Arithmetic aggregation with log variance, the variances' geometric mean: log σ² = Σ w log σ_k²."""

    def variance(self, variances: Tensor, weights: Tensor) -> Tensor:
        logs = torch.xlogy(weights.unsqueeze(1), variances)  # xlogy: weight 0 gives 0, also for σ = 0
        return logs.sum(dim=0).exp()


@dataclass(frozen=True)
class Wb(MeanOfMeans):
    """The Wasserstein-2 barycentre (eq. 9), the mean of the standard deviations: σ = Σ w σ_k."""

    def variance(self, variances: Tensor, weights: Tensor) -> Tensor:
        return (weights @ variances.sqrt()).square()


@dataclass(frozen=True)
class Rklb(Barycenter):
    """The reverse-KL barycentre (eq. 8), means by precision: 1/σ² = Σ w/σ_k², μ = σ² Σ w μ_k/σ_k².

    Where some clients have variance 0, only these count, which is the limit.
    """

    def merge(self, means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
        shares = nonnegative(weights).unsqueeze(1)
        smallest = variances.where(shares > 0, math.inf).amin(dim=0)
        relative = torch.where(variances > smallest, smallest / variances, 1.0)  # 1/σ_k² over the largest
        precisions = shares * relative
        total = precisions.sum(dim=0)
        return (precisions * means).sum(dim=0) / total, smallest / total


@dataclass(frozen=True)
class ForwardKl(Barycenter):
    """The forward-KL barycentre, the moments of the mixture: σ² = Σ w (σ_k² + (μ_k − μ)²)."""

    def merge(self, means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
        mean = weights @ means
        return mean, nonnegative(weights) @ (variances + (means - mean).square())


@dataclass(frozen=True)
class Alpha(Barycenter):
    """The mean and the variance of the α-barycentre (Theorem 1): `rklb` at 0, `forward-kl` at 1.

    α is the paper's: the density is ∝ (Σ w p_k^α)^(1/α), and minimises Σ w D_α(p_k‖q). Closed forms serve
    the two ends, quadrature the rest.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise InputError(f"combining rule 'alpha': alpha must be from 0 to 1, not {self.alpha}.")

    def merge(self, means: Tensor, variances: Tensor, weights: Tensor) -> Moments:
        if self.alpha < MIN_ALPHA:
            return Rklb().merge(means, variances, weights)
        if self.alpha == 1:
            return ForwardKl().merge(means, variances, weights)
        counted = weights > 0
        shares = nonnegative(weights)[counted]
        return moments_of_power_mean(means[counted], variances[counted], shares, self.alpha)
