"""The majority's camp: who, over the rounds, pulls the way most of the others pull?

Distances tell an update apart that is too long or wholly foreign. They do not tell a client with unusual data
from one that works against the rest; the angles between clients, averaged over rounds, do.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.pairs import Pairs
from steelyard.weighing.steps import TINY, bounded_lengths, normalised, sample_prior, typical

SPREAD = 0.05  # of an agreement, at least: so much differs between honest clients by chance
CLEAR = 1.25  # the clients agree when the leading eigenvalue exceeds the opposite one by this factor
SD = 1.4826  # standard deviations in a median absolute deviation, of a normal distribution


@dataclass(frozen=True)
class Majority(Weigher):
    """Weigh by n_j, but not who opposes the majority over the rounds, and copies of one update only once.

    The leading eigenvector of the clients' mean cosines parts them into two camps. A client counts in full
    while its mean cosine to the larger camp is within `tolerance` standard deviations of that camp's own, and
    not at all beyond twice as much. Updates nearer to each other than `crowd` of the typical distance share
    one vote. Nobody counts with more than the typical length, or more than `cap` × the median of the counts;
    where clients rather repel each other than agree, nothing vouches for a count, and `cap` is 1.
    """

    cap: float = 3.0
    tolerance: float = 2.0
    crowd: float = 0.3
    memory: float = 0.8

    def __post_init__(self) -> None:
        for name, least in (("cap", 1.0), ("tolerance", 0.1), ("crowd", 0.0), ("memory", 0.0)):
            if not getattr(self, name) >= least:
                raise InputError(
                    f"weighing rule 'majority': {name} is at least {least}, not {getattr(self, name)}."
                )

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        count = len(geometry)
        pairs = Pairs.of(state).updated(round.clients, cosines(geometry), self.memory)
        votes = 1 / crowding(geometry.pairwise, self.crowd)
        camp = larger_camp(pairs.mean(count), votes)
        trust = camp.trust(self.tolerance) if camp.united else torch.ones_like(votes)
        prior = sample_prior(round.num_examples, 1.0, self.cap if camp.united else 1.0)
        weights = normalised(prior * votes * trust * bounded_lengths(geometry.norms, 1.0))
        evidence = {
            "agreement": camp.agreement,
            "trust": trust,
            "votes": votes,
            "united": torch.tensor(float(camp.united)),
        }
        return Weighed(weights, pairs.state(), evidence)


def cosines(geometry: Geometry) -> Tensor:
    """cos(x_i, x_j), [J, J], and 0 on the diagonal and for who did not move."""
    inverse = torch.where(geometry.norms > 0, 1 / geometry.norms.clamp(min=TINY), 0.0)
    angles = (geometry.gram * inverse).T * inverse
    return angles.clamp(-1.0, 1.0).fill_diagonal_(0.0)


def crowding(pairwise: Tensor, reach: float) -> Tensor:
    """How many stand where a client stands, itself included, [J].

    The typical distance is that to the middle one of all others: outliers do not stretch it.
    """
    scale = reach**2 * typical(pairwise.sort(dim=1).values[:, len(pairwise) // 2])
    if not bool(scale > 0):
        return torch.ones(len(pairwise), dtype=torch.float64)
    return torch.exp(-pairwise / scale).sum(dim=1)


class Camp(NamedTuple):
    """The clients that hang together and have more votes than the rest."""

    votes: Tensor
    """Of its members; 0 for all others."""
    agreement: Tensor
    """The mean cosine of each client, member or not, to the other members."""
    united: bool
    """Whether it is one at all."""

    def trust(self, tolerance: float) -> Tensor:
        """1 down to `tolerance` standard deviations below the middle of the camp, 0 from twice as much."""
        middle = _median(self.agreement, self.votes)
        spread = (SD * _median((self.agreement - middle).abs(), self.votes)).clamp(min=SPREAD)
        return (2 + (self.agreement - middle) / (tolerance * spread)).clamp(0.0, 1.0)


def larger_camp(mean_cosines: Tensor, votes: Tensor) -> Camp:
    """Of the two sides of the leading eigenvector, the one with more votes; of two alike, the more united.

    Where clients repel each other (each holds a class of its own, say) the opposite end of the spectrum is as
    strong or stronger, and the sides mean nothing.
    """
    root = votes.sqrt()
    values, vectors = torch.linalg.eigh(root.unsqueeze(1) * mean_cosines * root)
    ahead = vectors[:, -1] > 0
    members = max(votes * ahead, votes * ~ahead, key=lambda side: _strength(mean_cosines, side))
    agreement = mean_cosines @ members / (members.sum() - members).clamp(min=TINY)
    united = len(votes) > 2 and values[-1] > -CLEAR * values[0] and _median(agreement, members) > 0
    return Camp(members, agreement, bool(united))


def _strength(mean_cosines: Tensor, votes: Tensor) -> tuple[int, float]:
    """Whole votes first, then how much its members agree."""
    return round(float(votes.sum())), float(votes @ mean_cosines @ votes)


def _median(values: Tensor, weights: Tensor) -> Tensor:
    """The lower weighted median."""
    order = values.argsort(stable=True)
    reached = weights[order].cumsum(0) >= weights.sum() / 2
    return values[order][int(reached.double().argmax())]
