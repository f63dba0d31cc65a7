"""Concord against the same rule on the updates themselves, over rounds with changing clients."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from steelyard.geometry import Geometry
from steelyard.types import RoundInfo
from steelyard.weighing import Concord

Array = NDArray[np.float64]


def unit(vector: Array) -> Array:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector


def upper(values: Sequence[float]) -> float:
    return float(np.mean(sorted(values)[len(values) // 2 :]))


def lower_median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


class Transcription:
    """Client by client and vector by vector; histories are lists that are summed anew each time."""

    def __init__(self, rule: Concord) -> None:
        self.rule = rule
        self.step: Array | None = None
        self.past: dict[str, list[tuple[float, float | None, float]]] = {}
        """Of each round of a client: its cosine with the others, with the last step, and its kinship."""

    def round(self, x: Mapping[str, Array], n: Mapping[str, float]) -> dict[str, float]:
        votes = self.votes(x)
        speakers = {j: votes[j] * trust for j, trust in self.trust(dict.fromkeys(x), votes).items()}
        for _ in range(5):
            now = {j: self.now(j, x, speakers) for j in x}
            trust = self.trust(now, speakers)
            speakers = {j: votes[j] * trust[j] for j in x}
        length = {j: float(np.linalg.norm(x[j])) for j in x}
        along = {j: length[j] * now[j][0] for j in x}
        scores = {j: n[j] * speakers[j] * self.held(j, length) * self.held(j, along) for j in x}
        if sum(scores.values()) == 0:
            scores = dict(n)
        a = {j: scores[j] / sum(scores.values()) for j in x}
        for j in x:
            self.past.setdefault(j, []).append(now[j])
        self.step = sum(a[j] * x[j] for j in x)
        return a

    def votes(self, x: Mapping[str, Array]) -> dict[str, float]:
        distance = {j: sorted(float(((x[i] - x[j]) ** 2).sum()) for i in x) for j in x}
        middle = [distance[j][len(x) // 2] for j in x]
        scale = self.rule.crowd**2 * (float(np.median(middle)) or float(np.mean(middle)))
        return {j: 1 / sum(math.exp(-d / scale) for d in distance[j]) if scale > 0 else 1.0 for j in x}

    def now(self, j: str, x: Mapping[str, Array], speakers: Mapping[str, float]) -> tuple[float, Any, float]:
        others = [i for i in x if i != j]
        voice = sum(speakers[i] for i in others)
        pull = sum((speakers[i] * unit(x[i]) for i in others), np.zeros_like(x[j]))
        kin = sum(speakers[i] * float(unit(x[i]) @ unit(x[j])) ** 2 for i in others)
        past = None if self.step is None else float(unit(x[j]) @ unit(self.step))
        return float(unit(x[j]) @ unit(pull)), past, kin / voice if voice > 0 else 0.0

    def trust(self, now: Mapping[str, Any], speakers: Mapping[str, float]) -> dict[str, float]:
        present, past, kinship = {}, {}, {}
        for j, latest in now.items():
            # without the present round: only what was, already a round older
            rounds = [*self.past.get(j, []), *([] if latest is None else [latest])]
            ages = range(len(rounds), 0, -1) if latest is None else range(len(rounds) - 1, -1, -1)
            share = [self.rule.memory**age for age in ages]
            known = [(s, then) for s, (_, then, _) in zip(share, rounds, strict=True) if then is not None]
            present[j] = sum(s * c for s, (c, _, _) in zip(share, rounds, strict=True)) / (sum(share) + 2)
            past[j] = sum(s * then for s, then in known) / (sum(s for s, _ in known) + 2)
            kin = sum(s * k for s, (_, _, k) in zip(share, rounds, strict=True))
            kinship[j] = math.sqrt(kin / sum(share)) if sum(share) > 0 else 0.0
        voice = sum(speakers.values())
        mean = sum(speakers[j] * past[j] for j in now) / voice if voice else 0.0
        square = sum(speakers[j] * past[j] ** 2 for j in now) / voice if voice else 0.0
        most = mean / math.sqrt(square) if square > 0 else 0.0
        agreement = {j: present[j] + self.rule.past * most * past[j] for j in now}
        usual, kin = upper(list(agreement.values())), upper(list(kinship.values()))
        trust = {}
        for j in now:
            with_others = (
                min(1.0, max(0.0, 1 + agreement[j] / (self.rule.tolerance * usual))) if usual > 0 else 1.0
            )
            akin = min(1.0, max(0.0, (kinship[j] / kin - 0.1) / 0.2)) if kin > 0 else 1.0
            trust[j] = with_others * akin
        return trust

    def held(self, j: str, lengths: Mapping[str, float]) -> float:
        limit = self.rule.reach * lower_median([abs(each) for each in lengths.values()])
        return (limit / lengths[j]) ** 2 if lengths[j] > limit > 0 else 1.0


RULES = [
    Concord(reach=3.0),
    Concord(past=0.0, memory=0.5, reach=2.0),
    Concord(past=3.0, tolerance=0.1, memory=1.0, reach=1.0, crowd=0.8),
    Concord(memory=0.0, crowd=0.0, reach=1.5),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_rounds_with_changing_clients_agree_with_the_rule_on_the_updates_themselves(
    rule: Concord, seed: int
) -> None:
    random = np.random.default_rng(seed)
    naive, state = Transcription(rule), rule.init()
    own, doubted, held = random.normal(0, 1, (9, 30)), 0, 0
    for number in range(1, 11):
        present = sorted(random.choice(9, size=random.integers(1, 9), replace=False))
        clients = tuple(f"client/{one}" for one in present)
        updates = 0.5 + own[present] + random.normal(0, 0.5, (len(present), 30))
        updates *= (
            random.lognormal(0, 0.8, (len(present), 1)) * np.where(np.array(present) < 3, -1, 1)[:, None]
        )
        counts = random.integers(1, 50, len(present)).astype(float)
        info = RoundInfo(number, clients, torch.from_numpy(counts))
        weighed = rule.weigh(Geometry(torch.from_numpy(updates)), info, state)
        state = weighed.state
        wanted = naive.round(
            dict(zip(clients, updates, strict=True)), dict(zip(clients, counts, strict=True))
        )
        np.testing.assert_allclose(weighed.weights.numpy(), list(wanted.values()), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state["step"].numpy(), naive.step, rtol=1e-9, atol=1e-12)
        doubted += int((weighed.evidence["reliability"] < 1).sum())
        held += int((weighed.evidence["held"] < 1).sum())
    assert doubted > 3
    assert held > 0
