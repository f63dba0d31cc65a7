"""FedBaC's consensus and reliability in a form that works: who pulls with the others, over the rounds?

FedBaC compares an update with the server's momentum. On unequal data that misleads: a step overshoots for the
clients that made it, the next ones pull back, and honest updates run *against* the past while reversed ones
run along it. Where all clients take part in every round it is the other way round. So here an update is
compared with the *others of its round*, and with the last step only as to whether it relates to it as most
others do. One round's cosines are noise; a client is judged by their mean over its rounds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.geometry import Geometry
from steelyard.types import EMPTY, RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.consensus import cosines_with
from steelyard.weighing.majority import cosines, crowding
from steelyard.weighing.memory import recall, remember
from steelyard.weighing.steps import TINY, normalised

PRIOR = 2.0  # rounds in which every client is taken to have pulled neither way
REPEATS = 5  # of trust from agreement with the trusted
NOISE = (0.1, 0.3)  # of the usual kinship: up to the first an update is noise, from the second it is not


class History(NamedTuple):
    """What is remembered of each client, [J]: sums over its rounds, of which the older count less."""

    rounds: Tensor
    present: Tensor
    """Cosines with the sum of the others' directions."""
    steps: Tensor
    """Rounds in which there was a last step."""
    past: Tensor
    """Cosines with it."""
    kinship: Tensor
    """Mean squared cosines with the others."""


@dataclass(frozen=True)
class Concord(Weigher):
    """Weigh by n_j, but not who pulls against the others over the rounds, nor noise, and copies only once.

    A client's agreement is the mean, over its rounds, of its cosine with the others of the round, and, `past`
    times, of its cosine with the last step if most agree with that, or minus it if most pull back from it. It
    counts in full while that is positive, and not at all from −`tolerance` × what is usual, the mean of the
    upper half. An update akin to no other is noise. Updates nearer to each other than `crowd` of the typical
    distance share one vote. With a finite `reach`, an update longer than so many medians, or that goes so
    much further than is usual along with the others, counts the less the longer it is; but clients whose
    classes the model knows least send long ones.
    """

    tolerance: float = 0.5
    past: float = 1.0
    memory: float = 0.97
    crowd: float = 0.3
    reach: float = math.inf

    offers = frozenset({"direction"})

    def __post_init__(self) -> None:
        for name, valid, wanted in (
            ("tolerance", self.tolerance > 0, "greater than 0"),
            ("past", self.past >= 0, "at least 0"),
            ("memory", 0 <= self.memory <= 1, "from 0 to 1"),
            ("crowd", self.crowd >= 0, "at least 0"),
            ("reach", self.reach >= 1, "at least 1"),
        ):
            if not valid:
                raise InputError(
                    f"weighing rule 'concord': {name} must be {wanted}, not {getattr(self, name)}."
                )

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        angles, last = cosines(geometry), state.get("step")
        votes = 1 / crowding(geometry.pairwise, self.crowd)
        past = torch.zeros_like(votes) if last is None else cosines_with(last, geometry)
        known = recall(
            state, "history", round.clients, torch.zeros(len(History._fields), dtype=torch.float64)
        )
        before = History(*(self.memory * known).unbind(1))
        speakers = votes * self.trust(before, votes)
        for _ in range(REPEATS):
            now = this_round(angles, past, speakers, last is not None)
            history = History(*(old + new for old, new in zip(before, now, strict=True)))
            trust = self.trust(history, speakers)
            speakers = votes * trust
        held = within(geometry.norms, self.reach) * within(geometry.norms * now.present, self.reach)
        scores = round.num_examples * speakers * held
        weights = normalised(scores if bool(scores.sum() > 0) else round.num_examples)
        following = remember(state, round.clients, history=torch.stack(history, dim=1))
        evidence = {
            "agreement": agreement(history, speakers, self.past),
            "reliability": trust,
            "votes": votes,
            "held": held,
        }
        return Weighed(weights, {**following, "step": geometry.mix(weights)}, evidence)

    def trust(self, history: History, speakers: Tensor) -> Tensor:
        """From 1, for who pulls with the others, to 0, for who pulls against them or is noise."""
        return gate(agreement(history, speakers, self.past), self.tolerance) * not_noise(history)

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return {"direction": state["step"]} if "step" in state else EMPTY


def this_round(angles: Tensor, past: Tensor, speakers: Tensor, stepped: bool) -> History:
    """One round's part of the history; speakers [J] say how much each counts among the others."""
    ones = torch.ones_like(speakers)
    along = angles @ speakers
    whole = speakers @ (along + speakers)  # ‖Σ s_j u_j‖² for the directions u_j
    rest = (whole - 2 * speakers * along - speakers.square()).clamp(min=0.0).sqrt()  # without one's own
    present = torch.where(rest > 0, along / rest.clamp(min=TINY), 0.0).clamp(-1.0, 1.0)
    kinship = angles.square() @ speakers / (speakers.sum() - speakers).clamp(min=TINY)
    return History(ones, present, ones * stepped, past, kinship)


def agreement(history: History, speakers: Tensor, past: float) -> Tensor:
    """How much each client pulls with the others, and relates to the last step as most do, [J].

    How clearly most agree with the last step (up to 1), or pull back from it (down to −1), is the mean of
    their cosines with it over the root of the mean square. Means of few rounds are drawn towards 0.
    """
    now, then = history.present / (history.rounds + PRIOR), history.past / (history.steps + PRIOR)
    power = (speakers @ then.square() * speakers.sum()).sqrt()
    usual = (speakers @ then) / power.clamp(min=TINY)
    return now + past * usual * then


def gate(agreement: Tensor, tolerance: float) -> Tensor:
    """1 down to an agreement of 0, and 0 from −tolerance × the usual one; 1 for all if there is none."""
    usual = upper_half(agreement)
    return (1 + agreement / (tolerance * usual)).clamp(0.0, 1.0) if usual > 0 else torch.ones_like(agreement)


def not_noise(history: History) -> Tensor:
    """0 for who is akin to nobody: among so many coordinates, chance alone makes no angle."""
    kinship = (history.kinship / history.rounds.clamp(min=TINY)).sqrt()
    usual, (least, enough) = upper_half(kinship), NOISE
    return (
        ((kinship / usual - least) / (enough - least)).clamp(0.0, 1.0)
        if usual > 0
        else torch.ones_like(kinship)
    )


def within(lengths: Tensor, reach: float) -> Tensor:
    """1 up to `reach` × the median, then falling with the square: the longer, the less it moves."""
    limit = reach * lengths.abs().median()
    if not bool(limit > 0) or math.isinf(reach):
        return torch.ones_like(lengths)
    return (limit / lengths.clamp(min=TINY)).clamp(max=1.0).square()


def upper_half(values: Tensor) -> float:
    """Their mean: what is usual among the honest, also where nearly half of a round are not."""
    return float(values.sort().values[len(values) // 2 :].mean())
