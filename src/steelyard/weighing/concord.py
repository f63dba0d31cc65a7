"""A variant of FedBaC's consensus and reliability that works on unequal data.

FedBaC compares an update with the server's momentum. On unequal data that misleads: a step overshoots for the
clients that made it, the next clients correct it, and honest updates point *against* the momentum. Here an
update is compared with the *other updates of its round*, and rounds count by how informative they are. Far
from the optimum, honest updates point the same way and a reversed one stands out. Near the optimum they point
apart, each towards its client's own classes, and angles are not informative. So a round counts by its
coherence, and a client is judged by the mean over its rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.types import EMPTY, RoundInfo, State, Weighed
from steelyard.verdicts.reasons import EXAMPLES, Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.majority import cosines, larger_camp
from steelyard.weighing.memory import recall, remember
from steelyard.weighing.steps import TINY, lower_median, normalised, shortened

MIN_COHERENCE = 0.001  # mean cosine: below it, a round does not show who agrees
MAX_COHERENCE = 0.2  # mean cosine: more coherent rounds do not count more, so that no single round decides
PRIOR_COHERENCE = 0.2  # weight, in coherence, of a prior agreement of 0 for each client
MIN_USUAL_AGREEMENT = 0.15  # lower limit of the usual agreement that clients are compared with
TRUST_ITERATIONS = 5  # trust depends on the agreement with trusted clients, so it is computed repeatedly
MAX_CONTRIBUTION = 0.9  # median norms: how far a client with few examples can move the model
NOISE_CORRELATION = (
    0.1,
    0.3,
)  # relative to the usual correlation: noise up to the first, none from the second


class History(NamedTuple):
    """What is remembered of each client, [J]: sums over its rounds, in which older rounds count less."""

    coherence: Tensor
    """The coherence of the round's trusted updates, at most MAX_COHERENCE."""
    weighted_cosine: Tensor
    """The cosine with the sum of the others' directions, times that coherence."""
    rounds: Tensor
    """The number of rounds."""
    correlation: Tensor
    """The root mean squared cosine with the others, relative to what was usual in the round."""

    def updated(self, now: "History", memory: float) -> "History":
        """With one more round. Cosines are discounted by the coherence since then, the rest by rounds."""
        fade, keep = memory ** (now.coherence / MAX_COHERENCE), memory
        return History(
            fade * self.coherence + now.coherence,
            fade * self.weighted_cosine + now.weighted_cosine,
            keep * self.rounds + now.rounds,
            keep * self.correlation + now.correlation,
        )

    @property
    def agreement(self) -> Tensor:
        """The mean cosine with the others, weighted by coherence and shrunk towards 0 if there is little."""
        return self.weighted_cosine / (self.coherence + PRIOR_COHERENCE)


@dataclass(frozen=True)
class Concord(Weigher):
    """Weigh by n_j, without clients that point against the others in coherent rounds, and without noise.

    A client's agreement is the mean over its rounds of its cosine with the other updates of the round. A
    round counts by its coherence, the mean cosine between two trusted updates. A client has full weight down
    to an agreement of −½ `tolerance` × the usual one (the mean of the upper half), and none from twice that.
    An update uncorrelated with all others is noise. An update that goes further in the common direction than
    `reach` × the median norm counts less the further it goes. Honest long updates go sideways, towards a
    client's own classes, and are not affected; but no client moves the model by more than 0.9 × the median
    norm (or n_j/n, if that is more). `memory` is the discount of earlier rounds.
    """

    tolerance: float = 0.5
    memory: float = 0.97
    reach: float = 1.5

    offers = frozenset({"direction"})
    reads_updates = True
    reasons = (
        Reason(
            "reliability",
            "agreement",
            less="it agreed less with the other clients",
            against="it pulled against the other clients",
            shows="agreement",
        ),
        EXAMPLES,
        Reason(
            "length_factor",
            "length factor",
            less="its updates went further than usual in the common direction",
        ),
    )

    def __post_init__(self) -> None:
        for name, valid, wanted in (
            ("tolerance", self.tolerance > 0, "greater than 0"),
            ("memory", 0 <= self.memory <= 1, "from 0 to 1"),
            ("reach", self.reach > 0, "greater than 0"),
        ):
            if not valid:
                raise InputError(
                    f"weighing rule 'concord': {name} must be {wanted}, not {getattr(self, name)}."
                )

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        angles = cosines(geometry)
        unknown = torch.zeros(len(History._fields), dtype=torch.float64)
        before = History(*recall(state, "history", round.clients, unknown).unbind(1))
        trust = first_trust(angles, self.trust(before))
        for _ in range(TRUST_ITERATIONS):
            history = before.updated(this_round(angles, trust), self.memory)
            trust = self.trust(history)
        norms, median = geometry.norms, lower_median(geometry.norms)
        common_lengths = norms * towards_others(angles, trust)
        length_factor = limit_lengths(common_lengths, self.reach * float(median))
        scores = round.num_examples * trust * length_factor
        weights = normalised(scores if bool(scores.sum() > 0) else round.num_examples)
        new_state = remember(state, round.clients, history=torch.stack(history, dim=1))
        evidence = {
            "agreement": history.agreement,
            "reliability": trust,
            "length_factor": length_factor,
            "coherence": coherence(angles, trust),
        }
        share = (round.num_examples / round.num_examples.sum()).clamp(min=MAX_CONTRIBUTION)
        scale = shortened(weights * norms, share * median)
        return Weighed(weights, {**new_state, "step": geometry.mix(weights * scale)}, evidence, scale)

    def trust(self, history: History) -> Tensor:
        """[J] from 0, for clients that point against the others or send noise, to 1."""
        return gate(history.agreement, self.tolerance) * not_noise(history)

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return {"direction": state["step"]} if "step" in state else EMPTY


def first_trust(angles: Tensor, trust: Tensor) -> Tensor:
    """The trust to start a round from: that of earlier rounds, or the larger camp if it has no coherence.

    With nearly half of the clients reversed, the mean cosine of all is 0 and shows nothing. A camp must have
    more than half of the trust.
    """
    if bool(coherence(angles, trust) > MIN_COHERENCE):
        return trust
    members = larger_camp(angles, trust).votes
    return members if bool(members.sum() > trust.sum() / 2) else trust


def this_round(angles: Tensor, trust: Tensor) -> History:
    """One round's part of the history. The others count by their trust [J]."""
    ones, weight = torch.ones_like(trust), coherence(angles, trust).clamp(max=MAX_COHERENCE)
    correlation = (angles.square() @ trust / (trust.sum() - trust).clamp(min=TINY)).sqrt()
    usual = upper_half_mean(correlation)
    relative = correlation / usual if usual > 0 else ones
    return History(ones * weight, weight * towards_others(angles, trust), ones, relative)


def coherence(angles: Tensor, trust: Tensor) -> Tensor:
    """The mean cosine between two updates, weighted by trust; 0 if it is negative."""
    pairs = (trust.sum().square() - trust @ trust).clamp(min=TINY)
    return (trust @ angles @ trust / pairs).clamp(0.0, 1.0)


def towards_others(angles: Tensor, trust: Tensor) -> Tensor:
    """Each update's cosine with the sum of the trusted others' directions, [J]."""
    along = angles @ trust
    whole = trust @ (along + trust)  # ‖Σ t_j u_j‖² for the directions u_j
    others = (whole - 2 * trust * along - trust.square()).clamp(min=0.0).sqrt()  # without the update itself
    return torch.where(others > 0, along / others.clamp(min=TINY), 0.0).clamp(-1.0, 1.0)


def gate(agreement: Tensor, tolerance: float) -> Tensor:
    """1 down to −½ tolerance × the usual agreement, falling to 0 at twice that."""
    usual = max(upper_half_mean(agreement), MIN_USUAL_AGREEMENT)
    return (2 + 2 * agreement / (tolerance * usual)).clamp(0.0, 1.0)


def not_noise(history: History) -> Tensor:
    """0 for updates uncorrelated with all others, as noise in many coordinates is, up to 1."""
    noise, signal = NOISE_CORRELATION
    mean = torch.where(history.rounds > 0, history.correlation / history.rounds.clamp(min=TINY), 1.0)
    return ((mean - noise) / (signal - noise)).clamp(0.0, 1.0)


def limit_lengths(lengths: Tensor, limit: float) -> Tensor:
    """1 up to the limit, then (limit / length)²: the longer an update, the less it moves the model."""
    if not limit > 0:
        return torch.ones_like(lengths)
    return (limit / lengths.clamp(min=TINY)).clamp(max=1.0).square()


def upper_half_mean(values: Tensor) -> float:
    """The mean of the upper half: what is usual among honest clients, even if nearly half are not honest."""
    return float(values.sort().values[len(values) // 2 :].mean())
