"""FedBaC's consensus and reliability in a form that works: who pulls with the others when they pull together?

FedBaC compares an update with the server's momentum. On unequal data that misleads: a step overshoots for the
clients that made it, the next ones pull back, and honest updates run *against* the past. So here an update is
compared with the *others of its round*, and not all rounds are believed alike. While there is somewhere to
go, honest updates point there together and a reversed one stands out. Near the optimum they point apart, each
to its own classes, and no angle says anything about anybody. A round therefore counts by its coherence, and a
client is judged by the mean over its rounds: what was seen while it could be seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.types import EMPTY, RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.majority import cosines
from steelyard.weighing.memory import recall, remember
from steelyard.weighing.steps import TINY, normalised

ENOUGH = 0.2  # coherence: a round that has more does not say more, so that no single round decides
PRIOR = 0.2  # coherence that every client is taken to have seen already, pulling neither way
USUAL = 0.15  # agreement, at least, among clients that have somewhere to go
REPEATS = 5  # of trust from agreement with the trusted
NOISE = (0.1, 0.3)  # of the usual kinship: up to the first an update is noise, from the second it is not


class History(NamedTuple):
    """What is remembered of each client, [J]: sums over its rounds, of which the older count less."""

    coherence: Tensor
    """How much the trusted of the round pulled together, up to ENOUGH."""
    present: Tensor
    """Cosines with the sum of the others' directions, times that."""
    rounds: Tensor
    kinship: Tensor
    """How akin to the others, whichever way it pulls, in units of what was usual in the round."""

    def updated(self, now: "History", memory: float) -> "History":
        """With one more round. What was seen fades as more is seen, and stays while nothing is."""
        fade, keep = memory ** (now.coherence / ENOUGH), memory
        return History(
            fade * self.coherence + now.coherence,
            fade * self.present + now.present,
            keep * self.rounds + now.rounds,
            keep * self.kinship + now.kinship,
        )

    @property
    def agreement(self) -> Tensor:
        """The mean cosine with the others, each round by its coherence; of little, drawn towards 0."""
        return self.present / (self.coherence + PRIOR)


@dataclass(frozen=True)
class Concord(Weigher):
    """Weigh by n_j, but not who pulls against the others when they pull together, nor noise.

    A client's agreement is the mean over its rounds of its cosine with the others of the round, where a round
    counts by its coherence, the mean cosine between two of those who are trusted. It counts in full down to
    −½ `tolerance` × what is usual, the mean of the upper half, and not at all from twice that. An update akin
    to no other is noise. One that goes further along with the others than `reach` times the median length
    counts the less the further it goes: honest long ones go aside, to a client's own classes.
    """

    tolerance: float = 0.5
    memory: float = 0.97
    reach: float = 1.5

    offers = frozenset({"direction"})

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
        nothing = torch.zeros(len(History._fields), dtype=torch.float64)
        before = History(*recall(state, "history", round.clients, nothing).unbind(1))
        trust = self.trust(before)
        for _ in range(REPEATS):
            history = before.updated(this_round(angles, trust), self.memory)
            trust = self.trust(history)
        cosine = towards_others(angles, trust)
        held = within(geometry.norms * cosine, self.reach * float(geometry.norms.median()))
        scores = round.num_examples * trust * held
        weights = normalised(scores if bool(scores.sum() > 0) else round.num_examples)
        following = remember(state, round.clients, history=torch.stack(history, dim=1))
        evidence = {
            "agreement": history.agreement,
            "reliability": trust,
            "held": held,
            "coherence": coherence(angles, trust),
        }
        return Weighed(weights, {**following, "step": geometry.mix(weights)}, evidence)

    def trust(self, history: History) -> Tensor:
        """From 1, for who pulls with the others, to 0, for who pulls against them or is noise."""
        return gate(history.agreement, self.tolerance) * not_noise(history)

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return {"direction": state["step"]} if "step" in state else EMPTY


def this_round(angles: Tensor, trust: Tensor) -> History:
    """One round's part of the history; trust [J] says how much each counts among the others."""
    ones, weight = torch.ones_like(trust), coherence(angles, trust).clamp(max=ENOUGH)
    kinship = (angles.square() @ trust / (trust.sum() - trust).clamp(min=TINY)).sqrt()
    usual = upper_half(kinship)
    relative = kinship / usual if usual > 0 else ones
    return History(ones * weight, weight * towards_others(angles, trust), ones, relative)


def coherence(angles: Tensor, trust: Tensor) -> Tensor:
    """The mean cosine between two of the trusted, and 0 where they pull apart."""
    pairs = (trust.sum().square() - trust @ trust).clamp(min=TINY)
    return (trust @ angles @ trust / pairs).clamp(0.0, 1.0)


def towards_others(angles: Tensor, trust: Tensor) -> Tensor:
    """Each update's cosine with the sum of the trusted others' directions, [J]."""
    along = angles @ trust
    whole = trust @ (along + trust)  # ‖Σ t_j u_j‖² for the directions u_j
    rest = (whole - 2 * trust * along - trust.square()).clamp(min=0.0).sqrt()  # without one's own
    return torch.where(rest > 0, along / rest.clamp(min=TINY), 0.0).clamp(-1.0, 1.0)


def gate(agreement: Tensor, tolerance: float) -> Tensor:
    """1 down to −½ tolerance × the usual agreement, and 0 from twice that."""
    usual = max(upper_half(agreement), USUAL)
    return (2 + 2 * agreement / (tolerance * usual)).clamp(0.0, 1.0)


def not_noise(history: History) -> Tensor:
    """0 for who is akin to nobody: among so many coordinates, chance alone makes no angle."""
    least, enough = NOISE
    kinship = torch.where(history.rounds > 0, history.kinship / history.rounds.clamp(min=TINY), 1.0)
    return ((kinship - least) / (enough - least)).clamp(0.0, 1.0)


def within(lengths: Tensor, limit: float) -> Tensor:
    """1 up to the limit, then falling with the square: the longer, the less it moves."""
    if not limit > 0:
        return torch.ones_like(lengths)
    return (limit / lengths.clamp(min=TINY)).clamp(max=1.0).square()


def upper_half(values: Tensor) -> float:
    """Their mean: what is usual among the honest, also where nearly half of a round are not."""
    return float(values.sort().values[len(values) // 2 :].mean())
