"""Inverse-covariance weighting by variational Bayes (Nguyen et al., eqs. 14 to 23)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.errors import SHARE
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.gram import Products
from steelyard.weighing.icov import are_comparable, check_icov, factor_gls, leading_directions
from steelyard.weighing.ivar import VARIANCE, NoiseHistory, infer
from steelyard.weighing.memory import recall, remember
from steelyard.weighing.steps import TINY, fixed_point, normalised, sample_prior, typical

MIN_LATENT = 1e-6  # the length of latent vectors below which there is no factor


@dataclass(frozen=True)
class IcovVb(Weigher):
    """ICOV by variational Bayes, with a noise level for each client as in Algorithm 2.

    Starts from the variances of ivar-vb and the leading directions of its residuals, or from the directions
    of the clients' remembered latent vectors. σ_j² is the mean over a client's rounds; `memory` is the
    discount of earlier ones. The weights are generalised least squares; `clip` sets negative ones to 0. A
    client's noise is at least `floor` times the typical squared distance from ivar-vb's estimate, so that it
    does not vanish for clients that the factors explain completely.
    """

    factors: int = 1
    clip: bool = False
    memory: float = 1.0
    floor: float = 1e-3
    iterations: int = 100
    tolerance: float = 1e-9

    reasons = (VARIANCE,)

    def __post_init__(self) -> None:
        check_icov("icov-vb", self, floor=SHARE, memory=SHARE)

    @property
    def may_be_negative(self) -> bool:
        return not self.clip

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        history = NoiseHistory.of(state, round, self.memory)
        equal = sample_prior(round.num_examples, 0.0, 1.0)
        start, noise = infer(geometry, history, self.iterations, self.tolerance)
        weights = normalised(start.weights)
        distances = geometry.distances(weights)
        if not are_comparable(distances):  # no factors can be found: ivar-vb's weights
            evidence = {"variance": history.mean_with(noise), **start.evidence}
            return Weighed(weights, history.updated(state, round, noise), evidence)
        latent = recall(state, "latent", round.clients, torch.zeros(self.factors, dtype=torch.float64))
        if not bool(latent.norm() > MIN_LATENT):  # unknown, or no factor was found in earlier rounds
            latent = leading_directions(geometry.around(weights), self.factors)
        latent = latent / latent.norm(dim=0).max().clamp(min=TINY)
        posterior = initial_posterior(geometry, history.mean_with(noise), latent)
        min_noise = self.floor * typical(distances) / geometry.size

        def step(_: Tensor) -> Tensor:
            nonlocal posterior
            posterior = vb_step(posterior, geometry, history, min_noise)
            return factor_gls(*loadings_and_noise(posterior, history), self.clip)

        result = fixed_point(step, equal, self.iterations, self.tolerance)
        new_state = history.updated(state, round, posterior.noise)
        new_state = remember(new_state, round.clients, latent=posterior.latent)
        evidence = {
            "variance": posterior.scale_u * posterior.latent.square().sum(dim=1)
            + history.mean_with(posterior.noise),
            **result.evidence,
        }
        return Weighed(result.weights, new_state, evidence)


class FactorPosterior(NamedTuple):
    """The factorised posterior q(y) q(U) q(V) and its hyperparameters.

    The truth y and the latent directions U are linear combinations of J + 1 vectors: the differences d_j of
    the updates from the reference update r, and r itself.
    """

    directions: Tensor
    """The coefficients of U, [J + 1, D]."""
    latent: Tensor
    """The mean of v_j, [J, D]."""
    psi: Tensor
    """Ψ_j, the covariance of v_j, [J, D, D]."""
    noise: Tensor
    """σ_j², [J], of this round only."""
    scale_y: Tensor
    """σ_y², the prior variance of y."""
    scale_u: Tensor
    """σ_u²."""
    scale_v: Tensor
    """σ_v²."""


def initial_posterior(geometry: Geometry, noise: Tensor, latent: Tensor) -> FactorPosterior:
    clients, factors = latent.shape
    one = torch.ones((), dtype=torch.float64)
    psi = torch.zeros(clients, factors, factors, dtype=torch.float64)
    power = geometry.gram.diagonal().mean() / geometry.size
    directions = torch.zeros(clients + 1, factors, dtype=torch.float64)
    return FactorPosterior(directions, latent, psi, noise, power.clamp(min=TINY), power.clamp(min=TINY), one)


def vb_step(
    posterior: FactorPosterior, geometry: Geometry, history: NoiseHistory, min_noise: Tensor
) -> FactorPosterior:
    """One pass over eqs. 14 to 23, with p_j = 1/σ_j² instead of 1/σ²."""
    clients, factors = posterior.latent.shape
    size, products = geometry.size, geometry.products
    eye = torch.eye(factors, dtype=torch.float64)
    precision, latent = 1 / history.mean_with(posterior.noise), posterior.latent

    uncertainty = 1 / (1 / posterior.scale_y + precision.sum())  # λ, eq. 14
    observed = torch.cat([precision, precision.sum().view(1)])  # Σ p_j x_j, as x_j = d_j + r
    truth = uncertainty * (observed - posterior.directions @ (latent.T @ precision))  # eq. 15
    seconds = posterior.psi + latent.unsqueeze(2) * latent.unsqueeze(1)  # E[v_j v_jᵀ]
    summed = (precision.view(-1, 1, 1) * seconds).sum(dim=0)
    phi = torch.linalg.inv(eye / posterior.scale_u + summed)  # eq. 16
    scaled = precision.unsqueeze(1) * latent
    directions = torch.cat([scaled, scaled.sum(dim=0, keepdim=True)]) - truth.unsqueeze(1) * scaled.sum(dim=0)
    directions = directions @ phi  # eq. 17
    along = inner_with_residuals(truth, directions, products)  # Uᵀ(x_j − y)
    power, axes = torch.linalg.eigh(size * phi + directions.T @ basis_times(directions, products))
    power = power.clamp(min=TINY)  # rounding can make it negative
    square = (axes * power) @ axes.T  # E[UᵀU]
    eigenvalues = 1 / posterior.scale_v + precision.view(-1, 1, 1) * power  # of Ψ_j⁻¹
    psi = (axes / eigenvalues) @ axes.T  # eq. 18; the eigenvectors are the same for all clients
    latent = precision.unsqueeze(1) * (psi @ along.unsqueeze(2)).squeeze(2)  # eq. 19
    seconds = psi + latent.unsqueeze(2) * latent.unsqueeze(1)

    distances = products.distances(truth[:-1], truth[-1])
    explained = 2 * (latent * along).sum(dim=1) - (square * seconds).sum(dim=(1, 2))
    return FactorPosterior(
        directions,
        latent,
        psi,
        (uncertainty + (distances - explained) / size).clamp(min=min_noise),  # eq. 23, indices corrected
        uncertainty + (truth @ basis_times(truth, products)).clamp(min=0.0) / size,  # eq. 20
        power.sum() / (factors * size),  # eq. 21
        (seconds.diagonal(dim1=1, dim2=2).sum() / (factors * clients)).clamp(min=TINY),  # eq. 22
    )


def basis_times(coefficients: Tensor, products: Products) -> Tensor:
    """The Gram matrix of the J + 1 basis vectors times a vector or the columns of a matrix."""
    differences, reference = coefficients[:-1], coefficients[-1:]
    along = products.along if coefficients.dim() == 1 else products.along.unsqueeze(1)
    last = products.along @ differences + products.square * reference[0]
    return torch.cat([products.gram @ differences + along * reference, last.view_as(reference)])


def inner_with_residuals(truth: Tensor, directions: Tensor, products: Products) -> Tensor:
    """⟨x_j − y, u_d⟩, [J, D]. What all updates have in common cancels before the multiplication."""
    coefficients, rest = truth[:-1], 1 - truth[-1]
    differences, reference = directions[:-1], directions[-1]
    mixed = products.gram @ differences
    offset = (products.along - coefficients @ products.along).unsqueeze(1) * reference
    along = products.along @ differences + products.square * reference
    return mixed - coefficients @ mixed + offset + rest * along


def loadings_and_noise(posterior: FactorPosterior, history: NoiseHistory) -> tuple[Tensor, Tensor]:
    """V and σ_j² of Φ = V Vᵀ + diag(σ_j²), up to a common factor; σ_j² is averaged over rounds."""
    noise = history.mean_with(posterior.noise)
    return posterior.latent * (posterior.scale_u / noise.max()).sqrt(), noise / noise.max()
