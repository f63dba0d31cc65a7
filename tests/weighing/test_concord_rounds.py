"""Concord over rounds: clients that reverse their updates lose their weight, those that differ do not."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from concord_updates import SEEDS, clean, cosines_with_others, weigh
from torch import Tensor

from steelyard.types import State
from steelyard.weighing import Concord, concord

LIARS = 6  # clients that reverse their update: the first 6 of 20


# Reversed updates, over rounds


class World:
    """20 clients, each with its own optimum; 6 of them send the reverse of their update.

    The optima lie in a common direction at first. Once the model is there, clients point to their own
    optimum; clients of the same kind in `kinds` share one. With a rate above 1 the model overshoots, and all
    clients point back.
    """

    def __init__(
        self, seed: int, rate: float, kinds: Sequence[int] = range(20), noise: float = 0.3, size: int = 200
    ) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.rate, self.noise, self.size = rate, noise, size
        self.aims = 3.0 * self.normal(size) + self.normal(20, size)[list(kinds)]
        self.model = torch.zeros(size, dtype=torch.float64)
        self.step = torch.zeros_like(self.model)
        self.shares: list[float] = []
        """The weight of the reversed updates in each round."""
        self.honest: list[float] = []
        """The lowest reliability of an honest client in each round."""
        self.coherence: list[float] = []
        self.with_last: list[float] = []
        """The mean cosine of the true updates with the last step."""

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64)

    def run(self, rule: Concord, rounds: int, invited: int = 10) -> float:
        """The mean weight of the reversed updates in the last ten rounds."""
        state = rule.init()
        for _ in range(rounds):
            who = torch.randperm(20, generator=self.random)[:invited].sort().values
            true = self.aims[who] - self.model + self.noise * self.normal(invited, self.size)
            self.with_last.append(float(torch.cosine_similarity(true, self.step.unsqueeze(0)).mean()))
            sent = torch.where(who.unsqueeze(1) < LIARS, -true, true)
            weighed = weigh(rule, sent, state, [str(one) for one in who.tolist()])
            state, self.step = weighed.state, weighed.weights @ sent
            self.model = self.model + self.rate * self.step
            self.shares.append(float(weighed.weights[who < LIARS].sum()))
            self.honest.append(float(weighed.evidence["reliability"][who >= LIARS].min()))
            self.coherence.append(float(weighed.evidence["coherence"]))
        return float(np.mean(self.shares[-10:]))


SOME_RARE = [0, 0, 1, 1, 2, 3, *[0] * 5, *[1] * 4, *[2] * 3, 3, 4]
"""Of the honest clients, five have class 0, and classes 3 and 4 have one client each."""
UNEQUAL = pytest.mark.parametrize(
    ("rate", "kinds"), [(0.1, range(20)), (0.05, SOME_RARE)], ids=["each its own", "some rare"]
)


@SEEDS
@UNEQUAL
def test_clients_that_differ_near_the_optimum_are_trusted_and_those_reversed_before_are_not(
    rate: float, kinds: Sequence[int], seed: int
) -> None:
    world = World(seed, rate, kinds)
    assert world.run(Concord(), rounds=100) < 0.01
    assert min(world.honest) > 0.8
    assert min(world.coherence[:5]) > 0.7, "the simulated clients do not behave as intended"
    assert float(np.mean(world.coherence[-20:])) < 0.1, "the simulated clients do not behave as intended"


@SEEDS
@UNEQUAL
def test_if_all_rounds_counted_equally_honest_clients_would_lose_trust(
    rate: float, kinds: Sequence[int], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concord, "coherence", lambda angles, trust: torch.ones((), dtype=torch.float64))
    world = World(seed, rate, kinds)
    world.run(Concord(), rounds=100)
    assert min(world.honest[-70:]) < 0.8


@SEEDS
def test_reversed_updates_lose_their_weight_also_when_all_point_back_from_the_last_step(seed: int) -> None:
    world = World(seed, rate=1.8)
    assert world.run(Concord(), rounds=40) < 0.001
    assert min(world.honest) > 0.8
    assert float(np.mean(world.with_last[1:])) < -0.3, "the simulated clients do not behave as intended"


def test_the_mean_of_many_rounds_tells_more_than_one() -> None:
    long, short = (
        float(np.mean([World(seed, 0.03, noise=6.0).run(Concord(memory=memory), 40) for seed in range(4)]))
        for memory in (0.97, 0.0)
    )
    assert long < 0.25 * short


def test_old_rounds_fade() -> None:
    """A client that was reversed for 25 rounds and then honest for ten."""
    trusts = []
    for memory in (0.8, 1.0):
        rule, state = Concord(memory=memory), None
        for number in range(35):
            updates = clean(number, size=500)
            updates[0] *= -1 if number < 25 else 1
            weighed = weigh(rule, updates, state)
            state = weighed.state
        trusts.append(float(weighed.evidence["reliability"][0]))
    assert trusts[0] == 1
    assert trusts[1] < 0.3


# Rounds without coherence


def after_rounds(rounds: int, reversed: Sequence[int] = (0,), rule: Concord | None = None) -> State:
    state: State = {}
    for number in range(rounds):
        updates = clean(number)
        updates[list(reversed)] *= -1
        state = weigh(rule or Concord(), updates, state).state
    return state


ORTHOGONAL = torch.eye(10, dtype=torch.float64)
APART = ORTHOGONAL - 0.1
"""Each update points against the sum of the others: cosine −1, and +1 for a reversed update."""


def with_a_liar(updates: Tensor) -> Tensor:
    return torch.cat([-updates[:1], updates[1:]])


@pytest.mark.parametrize("updates", [ORTHOGONAL, APART], ids=["at right angles", "apart"])
@pytest.mark.parametrize("memory", [0.9, 0.97, 1.0])
def test_a_round_without_coherence_leaves_every_agreement_as_it_was(memory: float, updates: Tensor) -> None:
    rule, state = Concord(memory=memory), None
    for number in range(5):
        weighed = weigh(rule, with_a_liar(clean(number)), state)
        state = weighed.state
    before = weighed.evidence["agreement"]
    assert float(before[0]) < -0.5
    assert float(before[1:].min()) > 0.5
    for _ in range(100):
        weighed = weigh(rule, with_a_liar(updates), state)
        state = weighed.state
        assert float(weighed.evidence["coherence"]) == 0
        assert weighed.evidence["reliability"].tolist() == [0.0] + [1.0] * 9
        torch.testing.assert_close(weighed.evidence["agreement"], before, rtol=1e-12, atol=0)


def test_if_rounds_without_coherence_counted_trust_would_be_reversed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concord, "coherence", lambda angles, trust: torch.ones((), dtype=torch.float64))
    state: State = after_rounds(5)
    for _ in range(100):
        weighed = weigh(Concord(), with_a_liar(APART), state)
        state = weighed.state
    assert float(weighed.evidence["reliability"][0]) == 1
    assert float(weighed.evidence["reliability"][1:].min()) == 0


def test_coherence_is_the_mean_cosine_between_two_of_the_trusted() -> None:
    angles = torch.full((4, 4), 0.36, dtype=torch.float64).fill_diagonal_(0.0)
    angles[3, :3] = angles[:3, 3] = -0.9
    doubted = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    assert float(concord.coherence(angles, doubted)) == pytest.approx(0.36)
    half = torch.tensor([1.0, 1.0, 1.0, 0.1], dtype=torch.float64)
    assert float(concord.coherence(angles, half)) == pytest.approx((6 * 0.36 - 6 * 0.1 * 0.9) / (6 + 6 * 0.1))
    assert float(concord.coherence(angles, torch.ones(4, dtype=torch.float64))) == 0  # clamped at 0


@SEEDS
def test_the_evidence_is_a_number_for_each_client_and_one_of_the_round(seed: int) -> None:
    weighed = weigh(Concord(), with_a_liar(clean(seed)))
    assert {name: tuple(value.shape) for name, value in weighed.evidence.items()} == {
        "agreement": (10,),
        "reliability": (10,),
        "length_factor": (10,),
        "coherence": (),
    }
    assert float(weighed.evidence["coherence"]) == pytest.approx(0.5, rel=0.05)
    assert weighed.evidence["reliability"].tolist() == [0.0] + [1.0] * 9
    cosine = float(cosines_with_others(clean(seed)[1:]).mean())
    wanted = cosine * concord.MAX_COHERENCE / (concord.MAX_COHERENCE + concord.PRIOR_COHERENCE)
    torch.testing.assert_close(
        weighed.evidence["agreement"][1:], torch.full((9,), wanted).double(), rtol=0.05, atol=0
    )
    assert float(weighed.evidence["agreement"][0]) == pytest.approx(-wanted, rel=0.05)


# State


def test_a_new_client_is_trusted() -> None:
    updates = clean(99)
    weighed = weigh(Concord(), updates, after_rounds(12), ["new", *map(str, range(1, 10))])
    assert float(weighed.evidence["reliability"][0]) == 1
    torch.testing.assert_close(weighed.weights, torch.full_like(weighed.weights, 0.1), rtol=1e-3, atol=0)


@pytest.mark.parametrize(("common", "least", "most"), [(0.4, 1.0, 1.0), (0.6, 0.2, 0.8), (1.0, 0.0, 0.0)])
def test_one_opposing_round_removes_a_new_client_if_the_round_is_coherent(
    common: float, least: float, most: float
) -> None:
    updates = clean(99, common=common)
    updates[0] *= -1
    weighed = weigh(Concord(), updates, after_rounds(12, ()), ["new", *map(str, range(1, 10))])
    assert least <= float(weighed.evidence["reliability"][0]) <= most
    assert weighed.evidence["reliability"][1:].tolist() == [1.0] * 9


def test_the_history_goes_by_id_and_survives_absence() -> None:
    state = after_rounds(12)
    kept = state["history/0"].clone()
    for number in range(20, 24):
        state = weigh(Concord(), clean(number)[1:], state, list(map(str, range(1, 10)))).state
        assert torch.equal(state["history/0"], kept)
    turned = ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]
    weighed = weigh(Concord(), clean(99), state, turned)  # now it sends what the others send
    assert float(weighed.weights[-1]) == 0
    assert float(weighed.evidence["reliability"][:-1].min()) == 1
    straight = weigh(Concord(), clean(99).flip(0), state)
    torch.testing.assert_close(weighed.weights.flip(0), straight.weights)


def test_the_last_step_is_kept_and_offered_as_a_direction() -> None:
    rule, updates = Concord(), clean(0)
    assert dict(rule.offer(rule.init())) == {}
    weighed = weigh(rule, updates)
    assert rule.offer(weighed.state).keys() == {"direction"}
    torch.testing.assert_close(rule.offer(weighed.state)["direction"], weighed.weights @ updates)
