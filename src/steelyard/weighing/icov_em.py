"""Inverse-covariance weighting by maximum likelihood, with the number of factors inferred.

In each coordinate x = y 1 + V u + noise, with y ~ N(0, σ_y²), u ~ N(0, I_D) and a noise level per client.
This is factor analysis in which one factor, the truth, has all loadings fixed at 1. Differences between
clients cannot tell V from V + 1cᵀ; the likelihood of the updates themselves can. The model is fitted on the
Gram matrix by expectation-maximisation. D is chosen by the Bayesian information criterion. Where errors are
independent, D = 0, which is inverse-variance weighting.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.errors import SHARE
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.icov import are_comparable, check_icov, factor_gls, leading_directions
from steelyard.weighing.ivar import VARIANCE, NoiseHistory, infer
from steelyard.weighing.steps import fixed_point, inverted, normalised, typical


@dataclass(frozen=True)
class IcovEm(Weigher):
    """ICOV by expectation-maximisation: clients with correlated errors count as one.

    `factors` is the largest number of factors to try. A client's noise is at least `floor` times the typical
    variance. `clip` sets negative weights to 0. Where variances differ by more than 10⁹, the weights are
    those of ivar-vb.
    """

    factors: int = 2
    clip: bool = False
    floor: float = 1e-3
    iterations: int = 500
    tolerance: float = 1e-8

    reasons = (VARIANCE,)

    def __post_init__(self) -> None:
        check_icov("icov-em", self, floor=SHARE)

    @property
    def may_be_negative(self) -> bool:
        return not self.clip

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        start, _ = infer(geometry, NoiseHistory.of({}, round, 0.0), 100, self.tolerance)
        weights = normalised(start.weights)
        residuals = geometry.around(weights) / geometry.size
        scale = typical(residuals.diagonal())
        if not are_comparable(residuals.diagonal()):  # no factors can be found: ivar-vb's weights
            variance = residuals.diagonal().clamp(min=0.0)
            none = torch.zeros((), dtype=torch.float64)
            return Weighed(weights, state, {"variance": variance, "factors": none, **start.evidence})
        second = geometry.gram / geometry.size / scale
        power = (weights @ second @ weights).clamp(min=self.floor)
        most = min(self.factors, max(0, len(weights) - 3))
        directions = leading_directions(residuals / scale, most)
        noise = (residuals.diagonal() / scale).clamp(min=self.floor)
        best: tuple[float, Tensor, Fit, dict[str, Tensor]] | None = None
        for factors in range(most + 1):
            fit = Fit(directions[:, :factors], noise, power)

            def step(_: Tensor) -> Tensor:
                nonlocal fit
                fit = em_step(fit, second, self.floor)
                return factor_gls(fit.latent, fit.noise, self.clip)

            result = fixed_point(step, weights, self.iterations, self.tolerance)
            criterion = -2 * geometry.size * log_likelihood(fit, second) + penalty(fit, geometry.size)
            if best is None or criterion < best[0]:
                best = criterion, result.weights, fit, result.evidence
        assert best is not None
        _, weights, fit, evidence = best
        variance, factors_used = scale * fit.covariance.diagonal(), torch.tensor(float(fit.factors))
        return Weighed(weights, state, {"variance": variance, "factors": factors_used, **evidence})


class Fit(NamedTuple):
    """The parameters of the model. Variances are in units of the typical variance."""

    latent: Tensor
    """V, [J, D]."""
    noise: Tensor
    """σ_j², [J]."""
    power: Tensor
    """σ_y²."""

    @property
    def factors(self) -> int:
        return self.latent.shape[1]

    @property
    def covariance(self) -> Tensor:
        """The covariance [J, J] of the errors, without the truth."""
        common: Tensor = self.latent @ self.latent.T
        return common + torch.diag(self.noise)


def em_step(fit: Fit, second: Tensor, floor: float) -> Fit:
    """One step of expectation-maximisation, given the second moments of the updates [J, J]."""
    loadings, weighted, precision = posterior_precision(fit)
    uncertainty = inverted(precision)
    means = uncertainty @ weighted.T  # E[(y, u) | x] = means @ x
    cross = means @ second  # E[(y, u) xᵀ]
    square = uncertainty + cross @ means.T  # E[(y, u) (y, u)ᵀ]
    if fit.factors:
        rest = cross[1:] - square[1:, :1]  # E[u (x − y)ᵀ]
        loadings = torch.cat([loadings[:, :1], rest.T @ inverted(square[1:, 1:])], dim=1)
    noise = second.diagonal() + (loadings * (loadings @ square - 2 * cross.T)).sum(dim=1)
    return Fit(loadings[:, 1:], noise.clamp(min=floor), square[0, 0])


def posterior_precision(fit: Fit) -> tuple[Tensor, Tensor, Tensor]:
    """The loadings L = [1, V], Ψ⁻¹ L for the noise Ψ, and the precision of (y, u) given x."""
    loadings = torch.cat([torch.ones_like(fit.noise).unsqueeze(1), fit.latent], dim=1)
    weighted = loadings / fit.noise.unsqueeze(1)
    prior = torch.ones(fit.factors + 1, dtype=torch.float64)
    prior[0] = 1 / fit.power
    return loadings, weighted, loadings.T @ weighted + prior.diag()


def log_likelihood(fit: Fit, second: Tensor) -> float:
    """Of one coordinate, up to a constant, without forming the covariance of the updates (Woodbury)."""
    _, weighted, precision = posterior_precision(fit)
    explained = (inverted(precision) * (weighted.T @ second @ weighted)).sum()
    determinant = precision.logdet() + fit.noise.log().sum() + fit.power.log()
    return -0.5 * float(determinant + (second.diagonal() / fit.noise).sum() - explained)


def penalty(fit: Fit, size: int) -> float:
    """The number of parameters · log K, of the Bayesian information criterion."""
    clients, factors = fit.latent.shape
    return (clients + 1 + clients * factors - factors * (factors - 1) // 2) * math.log(size)
