"""Inverse-covariance weighting by variational Bayes (Nguyen et al., eqs. 14 to 23)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry, Products
from steelyard.weighing.icov import check_factors, factor_gls, leading_directions
from steelyard.weighing.ivar import Past, infer
from steelyard.weighing.memory import recall, remember
from steelyard.weighing.steps import TINY, normalised, sample_prior, settle, typical


@dataclass(frozen=True)
class IcovVb(Weigher):
    """ICOV by variational Bayes, with a noise level for each client as in Algorithm 2.

    Starts from ivar-vb's variances and the leading directions of its residuals, or from what is remembered
    of the clients. The weights are generalised least squares, negative ones included unless `clip` is set.
    `floor`, times the typical distance from ivar-vb's estimate, keeps the noise of clients that the factors
    explain wholly from vanishing.
    """

    factors: int = 1
    clip: bool = False
    memory: float = 1.0
    floor: float = 1e-3
    iterations: int = 100
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        check_factors("icov-vb", self.factors)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        past = Past.of(state, round, self.memory)
        equal = sample_prior(round.num_examples, 0.0, 1.0)
        start, noise = infer(geometry, past, self.iterations, self.tolerance)
        distances = geometry.distances(normalised(start.weights))
        if not bool(distances.max() > 0):  # all sent the same
            return Weighed(equal, state)
        latent = recall(state, "latent", round.clients, torch.zeros(self.factors, dtype=torch.float64))
        if not bool(latent.any()):
            latent = leading_directions(geometry.around(normalised(start.weights)), self.factors)
            latent = latent / torch.linalg.vector_norm(latent[:, 0]).clamp(min=TINY)
        beliefs = first_beliefs(geometry, past.mean_with(noise), latent)
        least = self.floor * typical(distances) / geometry.size

        def step(weights: Tensor) -> Tensor:
            nonlocal beliefs
            beliefs = improve(beliefs, geometry, past, least)
            return factor_gls(*loadings_and_noise(beliefs), self.clip)

        settled = settle(step, equal, self.iterations, self.tolerance)
        kept = past.updated(state, round, beliefs.noise)
        kept = remember(kept, round.clients, latent=beliefs.latent)
        evidence = {
            "variance": beliefs.scale_u * beliefs.latent.square().sum(dim=1) + beliefs.noise,
            **settled.evidence,
        }
        return Weighed(settled.weights, kept, evidence)


class Beliefs(NamedTuple):
    """The factored posterior q(y) q(U) q(V) and its hyperparameters.

    The truth and the latent directions are combinations of J + 1 vectors: the differences of the updates from
    the reference update, and the reference itself.
    """

    directions: Tensor
    """U: coefficients of the D latent directions, [J + 1, D]."""
    latent: Tensor
    """The mean of v_j, [J, D]."""
    spread: Tensor
    """Ψ_j, the covariance of v_j, [J, D, D]."""
    noise: Tensor
    """σ_j², [J], of this round alone."""
    scale_y: Tensor
    scale_u: Tensor
    scale_v: Tensor


def first_beliefs(geometry: Geometry, noise: Tensor, latent: Tensor) -> Beliefs:
    clients, factors = latent.shape
    one = torch.ones((), dtype=torch.float64)
    spread = torch.zeros(clients, factors, factors, dtype=torch.float64)
    power = geometry.gram.diagonal().mean() / geometry.size
    directions = torch.zeros(clients + 1, factors, dtype=torch.float64)
    return Beliefs(directions, latent, spread, noise, power.clamp(min=TINY), power.clamp(min=TINY), one)


def improve(beliefs: Beliefs, geometry: Geometry, past: Past, least: Tensor) -> Beliefs:
    """One round of eqs. 14 to 23, with p_j = 1/σ_j² in the place of 1/σ²."""
    clients, factors = beliefs.latent.shape
    size, part = geometry.size, geometry.products
    eye = torch.eye(factors, dtype=torch.float64)
    precision, latent = 1 / past.mean_with(beliefs.noise), beliefs.latent

    uncertainty = 1 / (1 / beliefs.scale_y + precision.sum())  # λ, eq. 14
    heard = torch.cat([precision, precision.sum().view(1)])  # x_j = d_j + r
    truth = uncertainty * (heard - beliefs.directions @ (latent.T @ precision))  # eq. 15
    seconds = beliefs.spread + latent.unsqueeze(2) * latent.unsqueeze(1)
    phi = torch.linalg.inv(eye / beliefs.scale_u + (precision.view(-1, 1, 1) * seconds).sum(dim=0))  # eq. 16
    told = precision.unsqueeze(1) * latent
    directions = torch.cat([told, told.sum(dim=0, keepdim=True)]) - truth.unsqueeze(1) * told.sum(dim=0)
    directions = directions @ phi  # eq. 17
    along = inner_with_residuals(truth, directions, part)  # Uᵀ(x_j − y)
    power, axes = torch.linalg.eigh(size * phi + directions.T @ basis_times(directions, part))
    power = power.clamp(min=TINY)  # rounding can take it below 0
    square = (axes * power) @ axes.T  # E[UᵀU]
    shrunk = 1 / beliefs.scale_v + precision.view(-1, 1, 1) * power
    spread = (axes / shrunk) @ axes.T  # eq. 18; the axes are the same for all clients
    latent = precision.unsqueeze(1) * (spread @ along.unsqueeze(2)).squeeze(2)  # eq. 19
    seconds = spread + latent.unsqueeze(2) * latent.unsqueeze(1)

    distances = part.distances(truth[:-1], truth[-1])
    explained = 2 * (latent * along).sum(dim=1) - (square * seconds).sum(dim=(1, 2))
    return Beliefs(
        directions,
        latent,
        spread,
        (uncertainty + (distances - explained) / size).clamp(min=least),  # eq. 23, its indices put right
        uncertainty + (truth @ basis_times(truth, part)).clamp(min=0.0) / size,  # eq. 20
        power.sum() / (factors * size),  # eq. 21
        (seconds.diagonal(dim1=1, dim2=2).sum() / (factors * clients)).clamp(min=TINY),  # eq. 22
    )


def basis_times(coefficients: Tensor, part: Products) -> Tensor:
    """The Gram matrix of the J + 1 basis vectors times a vector, or the columns of a matrix."""
    rows, last = coefficients[:-1], coefficients[-1:]
    along = part.along if coefficients.dim() == 1 else part.along.unsqueeze(1)
    return torch.cat(
        [part.gram @ rows + along * last, (part.along @ rows + part.square * last[0]).view_as(last)]
    )


def inner_with_residuals(truth: Tensor, directions: Tensor, part: Products) -> Tensor:
    """⟨x_j − y, u_d⟩, [J, D], such that what all updates have in common cancels before it is multiplied."""
    near, short = truth[:-1], 1 - truth[-1]
    rows, last = directions[:-1], directions[-1]
    mixed = part.gram @ rows
    beyond = (part.along - near @ part.along).unsqueeze(1) * last
    return mixed - near @ mixed + beyond + short * (part.along @ rows + part.square * last)


def loadings_and_noise(beliefs: Beliefs) -> tuple[Tensor, Tensor]:
    """V and σ_j² of Φ = V Vᵀ + diag(σ_j²), up to a factor."""
    scale = beliefs.noise.max()
    return beliefs.latent * (beliefs.scale_u / scale).sqrt(), beliefs.noise / scale
