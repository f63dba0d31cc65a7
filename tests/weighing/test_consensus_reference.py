"""FedBaC against its Algorithm 1 on the updates themselves, over rounds with changing clients."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from steelyard.types import RoundInfo
from steelyard.weighing import Consensus
from steelyard.weighing.geometry import Geometry

Array = NDArray[np.float64]


class Transcription:
    """Algorithm 1, line by line, on the updates themselves, with what the server keeps by client."""

    def __init__(self, rule: Consensus) -> None:
        self.rule = rule
        self.v: Array | None = None
        self.buffers: dict[str, list[float]] = {}

    def round(self, updates: Mapping[str, Array], counts: Mapping[str, float]) -> dict[str, float]:
        rule, n = self.rule, sum(counts.values())
        by_samples = {i: counts[i] / n for i in updates}
        a = by_samples
        if self.v is not None:
            scores = {i: self.score(i, v_i) for i, v_i in updates.items()}
            if sum(scores.values()) > 0:
                a = {i: scores[i] / sum(scores.values()) for i in updates}
        smoothed = a if rule.momentum == "weights" else by_samples
        bounded = dict(updates)
        if rule.bound:
            norms = sorted(float(np.linalg.norm(v_i)) for v_i in updates.values())
            most = rule.bound * norms[(len(norms) - 1) // 2]
            bounded = {i: min(1.0, most / float(np.linalg.norm(v_i))) * v_i for i, v_i in updates.items()}
        mean = sum(smoothed[i] * bounded[i] for i in updates)
        before = np.zeros_like(mean) if self.v is None else self.v
        self.v = rule.beta * before + (1 - rule.beta) * mean
        return a

    def score(self, i: str, v_i: Array) -> float:
        rule = self.rule
        cosine = float(v_i @ self.v / (np.linalg.norm(v_i) * np.linalg.norm(self.v)))
        gate = max(0.0, cosine) if rule.gate == "hard" else (1 + cosine) / 2
        self.buffers.setdefault(i, []).append(cosine)
        last = self.buffers[i][-rule.window :]
        mean = sum(last) / len(last)
        variance = sum((value - mean) ** 2 for value in last) / len(last)
        return math.exp(-rule.alpha * variance) * gate**rule.gamma


@pytest.mark.parametrize(
    "rule",
    [
        Consensus(),
        Consensus(beta=0.0, gamma=2.0, alpha=5.0, window=2),
        Consensus(beta=0.5, momentum="samples", gamma=0.5, alpha=20.0, window=3),
        Consensus(gate="soft", gamma=3.0, bound=1.0),
        Consensus(gamma=0.0, alpha=30.0, bound=2.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("seed", range(3))
def test_rounds_with_changing_clients_agree_with_the_algorithm_of_the_paper(
    rule: Consensus, seed: int
) -> None:
    random = np.random.default_rng(seed)
    naive, state = Transcription(rule), rule.init()
    fell_back = 0
    for number in range(1, 13):
        present = sorted(random.choice(8, size=random.integers(1, 7), replace=False))
        clients = tuple(f"client/{one}" for one in present)
        updates = random.normal(0.15, 1, (len(present), 20)) * random.lognormal(0, 1, (len(present), 1))
        counts = random.integers(1, 50, len(present)).astype(float)
        info = RoundInfo(number, clients, torch.from_numpy(counts))
        weighed = rule.weigh(Geometry(torch.from_numpy(updates)), info, state)
        state = weighed.state
        wanted = naive.round(
            dict(zip(clients, updates, strict=True)), dict(zip(clients, counts, strict=True))
        )
        fell_back += int(weighed.evidence["fell_back"])
        np.testing.assert_allclose(weighed.weights.numpy(), list(wanted.values()), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state["momentum"].numpy(), naive.v, rtol=1e-9, atol=1e-12)
        for client, past in naive.buffers.items():
            np.testing.assert_allclose(
                state[f"cosines/{client}"].numpy(), past[-rule.window :], rtol=1e-9, atol=1e-12
            )
    assert 0 < fell_back < 8
