"""Weigh clients by whether their updates, over the rounds, point the same way as those of most others.

Distances detect updates that are too long or unrelated to the others. They do not distinguish a client with
unusual data from one that works against the rest. The angles between clients, averaged over rounds, do.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor

from steelyard.errors import SHARE, InputError, check_settings
from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import EXAMPLES, Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.pairs import Pairs
from steelyard.weighing.steps import TINY, lower_median, normalised, sample_prior, shortened, typical

MIN_AGREEMENT_SD = 0.05  # smallest standard deviation of agreements: honest clients differ by chance
MIN_EIGENVALUE_RATIO = 1.25  # clients agree if |largest / smallest eigenvalue| exceeds this
MIN_COSINE_SD = 3.0  # standard deviations of the cosine of two independent directions
MIN_NOISE_RATIO = (
    3.0  # of the norm of an unrelated update to the median of the related ones: above, it is noise
)
MAX_DECOMPOSED = 300  # clients whose eigenvectors are all computed
MAD_TO_SD = 1.4826  # standard deviation / median absolute deviation of a normal distribution


@dataclass(frozen=True)
class Majority(Weigher):
    """Weigh by n_j, without clients that oppose the majority over the rounds; copies share one vote.

    The leading eigenvector of the clients' mean cosines splits them into two camps. A client has full weight
    while its mean cosine with the larger camp is at most `tolerance` standard deviations below that camp's
    median, and none beyond twice that. Updates closer to each other than `crowd` × the typical distance share
    one vote. An update's norm counts up to the median norm, a client's n_j up to `cap` × the median count; no
    client moves the model by more than the median norm. If clients oppose each other more than they agree, no
    camp is trusted: all have full weight, and `cap` is 1. Long updates that are unrelated to all others, as
    noise is, have no vote.
    """

    cap: float = 3.0
    tolerance: float = 2.0
    crowd: float = 0.3
    memory: float = 0.8

    reasons = (
        Reason(
            "trust",
            "agreement",
            less="it agreed less with the majority",
            against="it pulled against the majority",
            shows="agreement",
        ),
        Reason("votes", "votes", less="its updates were nearly equal to others, which share one vote"),
        EXAMPLES,
        Reason("norm", "norm", less="its updates were long and were shortened", power=-1.0, relative=True),
    )

    def __post_init__(self) -> None:
        check_settings("weighing rule 'majority': ", self, memory=SHARE)
        for name, minimum in (("cap", 1.0), ("tolerance", 0.1), ("crowd", 0.0)):
            if not getattr(self, name) >= minimum:
                raise InputError(
                    f"weighing rule 'majority': {name} must be at least {minimum}, not {getattr(self, name)}."
                )

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        count = len(geometry)
        angles, norms = cosines(geometry), geometry.norms
        pairs = Pairs.of(state).updated(round.clients, angles, self.memory)
        counted = ~are_noise(angles, norms, geometry.size)
        votes = 1 / crowding(geometry.pairwise, self.crowd, counted)
        camp = larger_camp(pairs.mean(count), votes * counted)
        trust = camp.trust(self.tolerance) if camp.united else torch.ones_like(votes)
        prior = sample_prior(round.num_examples, 1.0, self.cap if camp.united else 1.0)
        limit = torch.minimum(lower_median(norms), lower_median(norms[counted]))
        weights = normalised(prior * votes * trust * shortened(norms, limit))
        evidence = {
            "agreement": camp.agreement,
            "trust": trust,
            "votes": votes,
            "united": torch.tensor(float(camp.united)),
        }
        return Weighed(weights, pairs.state(), evidence, shortened(weights * norms, limit))


def cosines(geometry: Geometry) -> Tensor:
    """cos(x_i, x_j), [J, J]; 0 on the diagonal and for updates that are 0."""
    gram, norms = geometry.gram, geometry.norms  # in this order: both from one read of the updates
    inverse = torch.where(norms > 0, 1 / norms.clamp(min=TINY), 0.0)
    angles = (gram * inverse).T * inverse
    return angles.clamp(-1.0, 1.0).fill_diagonal_(0.0)


def are_noise(angles: Tensor, norms: Tensor, size: int) -> Tensor:
    """Whether an update of `size` coordinates is unrelated to all others, and longer than related ones, [J].

    Cosines of independent directions have the standard deviation 1/√K. Of ordinary length, unrelated updates
    may come from honest clients with little in common, and those that agree from a few that work together. If
    fewer than three clients or a third of them would be left, none is noise.
    """
    related = angles.square().amax(dim=1) * size >= MIN_COSINE_SD**2
    if not bool(related.any()):
        return related
    noise = ~related & (norms > MIN_NOISE_RATIO * lower_median(norms[related]))
    left = len(noise) - int(noise.sum())
    return noise if left >= max(3, len(noise) / 3) else torch.zeros_like(noise)


def crowding(pairwise: Tensor, radius: float, counted: Tensor) -> Tensor:
    """How many updates are about equal to each client's, itself included, [J].

    `radius` is in units of the typical distance between `counted` updates: the median over clients of the
    distance to the middle one of the others, which outliers do not change.
    """
    among = pairwise[counted][:, counted]
    scale = radius**2 * typical(among.sort(dim=1).values[:, len(among) // 2])
    if not bool(scale > 0):
        return torch.ones(len(pairwise), dtype=torch.float64)
    return torch.exp(-pairwise / scale).sum(dim=1)


class Camp(NamedTuple):
    """The clients whose updates point the same way and that have more votes than the rest."""

    votes: Tensor
    """[J], the votes of its members; 0 for other clients."""
    agreement: Tensor
    """[J], the mean cosine of each client, member or not, with the other members."""
    united: bool
    """Whether the clients agree clearly enough for the camp to mean anything."""

    def trust(self, tolerance: float) -> Tensor:
        """1 down to `tolerance` standard deviations below the camp's median, falling to 0 at twice that."""
        median = _median(self.agreement, self.votes)
        deviation = _median((self.agreement - median).abs(), self.votes)
        sd = (MAD_TO_SD * deviation).clamp(min=MIN_AGREEMENT_SD)
        return (2 + (self.agreement - median) / (tolerance * sd)).clamp(0.0, 1.0)


def larger_camp(mean_cosines: Tensor, votes: Tensor) -> Camp:
    """The side of the leading eigenvector with more votes; if both have the same, the one that agrees more.

    Where clients oppose each other, for example because each has a different class, the smallest eigenvalue
    is as large in magnitude as the largest, and the sides mean nothing.
    """
    root = votes.sqrt()
    smallest, largest, leading = extreme_eigenpairs(root.unsqueeze(1) * mean_cosines * root)
    positive = leading > 0
    members = max(votes * positive, votes * ~positive, key=lambda side: _strength(mean_cosines, side))
    agreement = mean_cosines @ members / (members.sum() - members).clamp(min=TINY)
    united = len(votes) > 2 and largest > -MIN_EIGENVALUE_RATIO * smallest and _median(agreement, members) > 0
    return Camp(members, agreement, bool(united))


def extreme_eigenpairs(matrix: Tensor) -> tuple[float, float, Tensor]:
    """The smallest and the largest eigenvalue of a symmetric matrix [J, J], and the vector of the largest.

    A large matrix is only multiplied with vectors (Lanczos), which is ten times faster than decomposing it.
    """
    if len(matrix) > MAX_DECOMPOSED:
        start = np.random.default_rng(0).normal(size=len(matrix))
        with suppress(ArpackNoConvergence):
            (largest,), vectors = eigsh(matrix.numpy(), k=1, which="LA", v0=start, tol=1e-6)
            (smallest,) = eigsh(
                matrix.numpy(), k=1, which="SA", v0=start, tol=1e-2, return_eigenvectors=False
            )
            return float(smallest), float(largest), torch.from_numpy(vectors[:, 0])
    values, vectors = torch.linalg.eigh(matrix)
    return float(values[0]), float(values[-1]), vectors[:, -1]


def _strength(mean_cosines: Tensor, votes: Tensor) -> tuple[int, float]:
    """The sort key of a camp: whole votes, then how much its members agree."""
    return round(float(votes.sum())), float(votes @ mean_cosines @ votes)


def _median(values: Tensor, weights: Tensor) -> Tensor:
    """The lower weighted median."""
    order = values.argsort(stable=True)
    reached = weights[order].cumsum(0) >= weights.sum() / 2
    return values[order][int(reached.double().argmax())]
