"""Inverse-covariance weighting (Nguyen et al., "Probabilistic Inference for Learning from Untrusted
Sources").

Clients that share samples or methods have correlated errors: x_j = y + U v_j + noise_j, with D latent
directions U per round and a latent vector v_j per client. The covariance between clients is
Φ = σ_u² V Vᵀ + diag(σ_j²). The generalised least squares weights Φ⁻¹1 / 1ᵀΦ⁻¹1 may be negative.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import COUNT, NOT_NEGATIVE, Range, check_settings
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.ivar import VARIANCE, NoiseHistory, infer
from steelyard.weighing.steps import fixed_point, inverted, normalised, typical

MIN_NOISE = 1e-9  # smallest noise variance, as a share of the largest eigenvalue: below it is rounding


def gls(covariance: Tensor, clip: bool) -> Tensor:
    """Φ⁻¹1 / 1ᵀΦ⁻¹1; with `clip`, negative weights become 0."""
    solved = torch.linalg.solve(covariance, torch.ones_like(covariance[0]))
    return normalised(solved.clamp(min=0.0)) if clip else solved / solved.sum()


def factor_gls(latent: Tensor, noise: Tensor, clip: bool) -> Tensor:
    """`gls` for Φ = V Vᵀ + diag(σ_j²), without forming Φ (Woodbury)."""
    scaled = latent / noise.unsqueeze(1)
    core = torch.eye(latent.shape[1], dtype=torch.float64) + latent.T @ scaled
    solved = 1 / noise - scaled @ (inverted(core) @ scaled.sum(dim=0))
    return normalised(solved.clamp(min=0.0)) if clip else solved / solved.sum()


def leading_directions(residuals: Tensor, factors: int) -> Tensor:
    """V [J, D]: leading eigenvectors of the residual Gram matrix, scaled to their standard deviations."""
    values, vectors = torch.linalg.eigh(residuals)
    signs = torch.where(vectors.sum(dim=0) < 0, -1.0, 1.0)  # an eigenvector's sign is arbitrary
    scaled = (vectors * signs * values.clamp(min=0.0).sqrt()).flip(1)[:, :factors]
    return F.pad(scaled, (0, factors - scaled.shape[1]))


def are_comparable(variances: Tensor) -> bool:
    """Whether the typical variance is more than rounding beside the largest one.

    It is not where most updates are equal, or where one is longer than the rest by many orders of magnitude.
    """
    return bool(typical(variances) > MIN_NOISE * variances.max())


def check_icov(rule: str, weigher: Weigher, **others: Range) -> None:
    """Check the settings that all ICOV rules have, and others."""
    ranges = {"factors": COUNT, "iterations": COUNT, "tolerance": NOT_NEGATIVE, **others}
    check_settings(f"weighing rule {rule!r}: ", weigher, **ranges)


@dataclass(frozen=True)
class IcovMle(Weigher):
    """ICOV by maximum likelihood: alternates probabilistic PCA of the residuals (one noise level) with y.

    The paper uses gradient ascent (eqs. 9a-c). Given y, the maximum has a closed form (Tipping and Bishop,
    1999). Equal weights are a fixed point for any data, so the iteration starts from the weights of ivar-vb.
    It still returns to almost equal weights when half of the clients send noise. Prefer icov-em.
    """

    factors: int = 1
    clip: bool = False
    iterations: int = 50
    tolerance: float = 1e-9

    reasons = (VARIANCE,)

    def __post_init__(self) -> None:
        check_icov("icov-mle", self)

    @property
    def may_be_negative(self) -> bool:
        return not self.clip

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        start, _ = infer(geometry, NoiseHistory.of({}, round, 0.0), 100, self.tolerance)

        def step(weights: Tensor) -> Tensor:
            return gls(
                principal_covariance(geometry.around(weights) / geometry.size, self.factors), self.clip
            )

        result = fixed_point(step, normalised(start.weights), self.iterations, self.tolerance)
        variance = geometry.distances(result.weights) / geometry.size
        return Weighed(result.weights, state, {"variance": variance, **result.evidence})


def principal_covariance(residuals: Tensor, factors: int) -> Tensor:
    """σ² I + U (Λ − σ² I) Uᵀ: `factors` leading eigenvectors U, and σ² the mean of the other eigenvalues."""
    clients = len(residuals)
    values, vectors = torch.linalg.eigh(residuals)
    if not bool(values[-1] > 0):
        return torch.eye(clients, dtype=torch.float64)
    values = (values / values[-1]).clamp(min=0.0)
    kept = min(factors, clients - 1)
    noise: Tensor = values[: clients - kept].mean().clamp(min=MIN_NOISE)
    leading = vectors[:, clients - kept :]
    excess = (values[clients - kept :] - noise).clamp(min=0.0)
    covariance: Tensor = (leading * excess) @ leading.T
    return covariance + noise * torch.eye(clients, dtype=torch.float64)
