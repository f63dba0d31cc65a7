"""Concord against the same rule on the updates themselves, over rounds with changing clients."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from steelyard.types import RoundInfo
from steelyard.weighing import Concord
from steelyard.weighing.geometry import Geometry

Array = NDArray[np.float64]

PRIOR = 0.2


def unit(vector: Array) -> Array:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector


def upper(values: Sequence[float]) -> float:
    return float(np.mean(sorted(values)[len(values) // 2 :]))


def lower_median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def ramp(value: float) -> float:
    return min(1.0, max(0.0, value))


class Seen(NamedTuple):
    """One client in one round."""

    coherence: float
    cosine: float
    correlation: float


class Transcription:
    """Client by client and vector by vector; histories are lists that are summed anew each time."""

    def __init__(self, rule: Concord) -> None:
        self.rule = rule
        self.step: Array | None = None
        self.past: dict[str, list[Seen]] = {}
        self.evidence: dict[str, list[float]] = {}
        self.scale: list[float] = []

    def round(self, x: Mapping[str, Array], n: Mapping[str, float]) -> dict[str, float]:
        trust = self.first(x, self.trust({j: self.past.get(j, []) for j in x}))
        for _ in range(5):
            together = min(self.coherence(x, trust), 0.2)
            correlation = {j: self.correlation(j, x, trust) for j in x}
            usual = upper(list(correlation.values()))
            now = {
                j: Seen(together, self.along(j, x, trust), correlation[j] / usual if usual > 0 else 1.0)
                for j in x
            }
            rounds = {j: [*self.past.get(j, []), now[j]] for j in x}
            trust = self.trust(rounds)
        factor = {j: self.length_factor(j, x, trust) for j in x}
        scores = {j: n[j] * trust[j] * factor[j] for j in x}
        if sum(scores.values()) == 0:
            scores = dict(n)
        a = {j: scores[j] / sum(scores.values()) for j in x}
        for j in x:
            self.past.setdefault(j, []).append(now[j])
        median = lower_median([float(np.linalg.norm(x_j)) for x_j in x.values()])
        limit = {j: median * max(0.9, n[j] / sum(n.values())) for j in x}
        length = {j: a[j] * float(np.linalg.norm(x[j])) for j in x}
        self.scale = [limit[j] / length[j] if length[j] > limit[j] else 1.0 for j in x]
        self.step = sum(s_j * a[j] * x[j] for s_j, j in zip(self.scale, x, strict=True))
        self.evidence = {
            "agreement": [self.agreement(rounds[j]) for j in x],
            "reliability": list(trust.values()),
            "length_factor": list(factor.values()),
            "coherence": [self.coherence(x, trust)],
        }
        return a

    def first(self, x: Mapping[str, Array], trust: dict[str, float]) -> dict[str, float]:
        """Where the clients have no coherence: the side of the leading eigenvector with more trust."""
        if self.coherence(x, trust) > 0.001:
            return trust
        t = np.array(list(trust.values()))
        cosines = np.array([[0.0 if i == j else float(unit(x[i]) @ unit(x[j])) for j in x] for i in x])
        _, vectors = np.linalg.eigh(np.sqrt(np.outer(t, t)) * cosines)
        sides = [t * (vectors[:, -1] > 0), t * (vectors[:, -1] <= 0)]
        camp = max(sides, key=lambda side: (round(float(side.sum())), float(side @ cosines @ side)))
        return dict(zip(x, camp, strict=True)) if camp.sum() > t.sum() / 2 else trust

    def coherence(self, x: Mapping[str, Array], trust: Mapping[str, float]) -> float:
        pairs = [(i, j) for i in x for j in x if i != j]
        count = sum(trust[i] * trust[j] for i, j in pairs)
        cosines = sum(trust[i] * trust[j] * float(unit(x[i]) @ unit(x[j])) for i, j in pairs)
        return ramp(cosines / count) if count > 0 else 0.0

    def along(self, j: str, x: Mapping[str, Array], trust: Mapping[str, float]) -> float:
        pull = sum((trust[i] * unit(x[i]) for i in x if i != j), np.zeros_like(x[j]))
        return float(unit(x[j]) @ unit(pull))

    def correlation(self, j: str, x: Mapping[str, Array], trust: Mapping[str, float]) -> float:
        total = sum(trust[i] for i in x if i != j)
        squares = sum(trust[i] * float(unit(x[i]) @ unit(x[j])) ** 2 for i in x if i != j)
        return math.sqrt(squares / total) if total > 0 else 0.0

    def agreement(self, rounds: Sequence[Seen]) -> float:
        """A round counts less the more coherence came after it."""
        cosines = total = 0.0
        for number, seen in enumerate(rounds):
            since = sum(later.coherence for later in rounds[number + 1 :])
            share = self.rule.memory ** (since / 0.2)
            cosines += share * seen.coherence * seen.cosine
            total += share * seen.coherence
        return cosines / (total + PRIOR)

    def mean_correlation(self, rounds: Sequence[Seen]) -> float:
        shares = [self.rule.memory**age for age in range(len(rounds) - 1, -1, -1)]
        total = sum(share * seen.correlation for share, seen in zip(shares, rounds, strict=True))
        return total / sum(shares) if rounds else 1.0

    def trust(self, rounds: Mapping[str, Sequence[Seen]]) -> dict[str, float]:
        agreement = {j: self.agreement(seen) for j, seen in rounds.items()}
        usual = max(upper(list(agreement.values())), 0.15)
        return {
            j: ramp(2 + 2 * agreement[j] / (self.rule.tolerance * usual))
            * ramp((self.mean_correlation(seen) - 0.1) / 0.2)
            for j, seen in rounds.items()
        }

    def length_factor(self, j: str, x: Mapping[str, Array], trust: Mapping[str, float]) -> float:
        limit = self.rule.reach * lower_median([float(np.linalg.norm(x_j)) for x_j in x.values()])
        length = float(np.linalg.norm(x[j])) * self.along(j, x, trust)
        return (limit / length) ** 2 if length > limit > 0 else 1.0


RULES = [
    Concord(),
    Concord(memory=0.5, reach=1.0),
    Concord(tolerance=0.15, memory=1.0, reach=0.5),
    Concord(tolerance=2.0, memory=0.0, reach=0.8),
    Concord(reach=math.inf),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_rounds_with_changing_clients_agree_with_the_rule_on_the_updates_themselves(
    rule: Concord, seed: int
) -> None:
    """Clients have less in common each round; two of nine are reversed, one sends noise."""
    random = np.random.default_rng(seed)
    naive, state = Transcription(rule), rule.init()
    own, doubted, partly, limited, apart = random.normal(0, 1, (9, 30)), 0, 0, 0, 0
    for number in range(1, 16):
        present = sorted(random.choice(9, size=random.integers(1, 9), replace=False))
        clients = tuple(f"client/{one}" for one in present)
        updates = 2.0 / number + own[present] + random.normal(0, 0.5, (len(present), 30))
        updates *= np.where(np.array(present) < 2, -1, 1)[:, None]
        updates[np.array(present) == 3] = random.normal(0, 1, 30)
        updates *= random.lognormal(0, 1.5, (len(present), 1))
        counts = random.integers(1, 50, len(present)).astype(float)
        info = RoundInfo(number, clients, torch.from_numpy(counts))
        weighed = rule.weigh(Geometry(torch.from_numpy(updates)), info, state)
        state = weighed.state
        wanted = naive.round(
            dict(zip(clients, updates, strict=True)), dict(zip(clients, counts, strict=True))
        )
        np.testing.assert_allclose(weighed.weights.numpy(), list(wanted.values()), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state["step"].numpy(), naive.step, rtol=1e-9, atol=1e-12)
        assert weighed.scale is not None
        np.testing.assert_allclose(weighed.scale.numpy(), naive.scale, rtol=1e-9, atol=1e-12)
        assert weighed.evidence.keys() == naive.evidence.keys()
        for name, value in weighed.evidence.items():
            found = value.reshape(-1).numpy()
            np.testing.assert_allclose(found, naive.evidence[name], rtol=1e-9, atol=1e-9, err_msg=name)
        trust = weighed.evidence["reliability"]
        doubted += int((trust < 1).sum())
        partly += int(((trust > 0) & (trust < 1)).sum())
        limited += int((weighed.evidence["length_factor"] < 1).sum())
        apart += int(weighed.evidence["coherence"] == 0)
    assert doubted > 0
    assert partly > 0
    assert limited > 0 or math.isinf(rule.reach)
    assert apart > 0
