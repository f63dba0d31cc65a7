"""Concord: who is found out, who is not, and which part of the rule does it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.geometry import Geometry
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Concord

SEEDS = pytest.mark.parametrize("seed", range(3))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weigh(
    rule: Concord,
    updates: Tensor,
    state: State | None = None,
    clients: Sequence[str] | None = None,
    counts: Sequence[float] | None = None,
) -> Weighed:
    names = tuple(clients or (str(position) for position in range(len(updates))))
    claimed = torch.tensor(counts or [1.0] * len(updates), dtype=torch.float64)
    before = rule.init() if state is None else state
    return rule.weigh(Geometry(updates), RoundInfo(1, names, claimed), before)


def clean(seed: int, clients: int = 10, size: int = 2000) -> Tensor:
    """A common direction and as much of everyone's own: cosines of ½."""
    return normal(seed, size) + normal(1000 + seed, clients, size)


# Reversed updates, over rounds


class World:
    """Clients with aims of their own, of which 6 of 20 send the reverse of what they find.

    A round's updates are what all have in common, what is one's own, noise, and `follow` of the last step:
    below 0 they pull back from it, above 0 they go on with it.
    """

    def __init__(self, seed: int, follow: float, common: float, own: float, noise: float, size: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.follow, self.noise, self.size = follow, noise, size
        self.common, self.own = common * self.normal(size), own * self.normal(20, size)
        self.step = torch.zeros(size, dtype=torch.float64)
        self.cosines: list[float] = []

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64)

    def run(self, rule: Concord, rounds: int, invited: int) -> float:
        """What the reversed updates weigh in the last ten rounds, on average."""
        state, shares = rule.init(), []
        for _ in range(rounds):
            who = torch.randperm(20, generator=self.random)[:invited].sort().values
            found = self.common + self.own[who] + self.follow * self.step
            found += self.noise * self.normal(invited, self.size)
            if bool(self.step.any()):
                self.cosines.append(float(torch.cosine_similarity(found, self.step.unsqueeze(0)).mean()))
            sent = torch.where(who.unsqueeze(1) < 6, -found, found)
            weighed = weigh(rule, sent, state, [str(one) for one in who.tolist()])
            state, self.step = weighed.state, weighed.weights @ sent
            shares.append(float(weighed.weights[who < 6].sum()))
        return float(np.mean(shares[-10:]))


@SEEDS
@pytest.mark.parametrize("follow", [-1.0, 0.7])
def test_reversed_updates_lose_their_weight_whether_the_others_follow_the_last_step_or_pull_back_from_it(
    follow: float, seed: int
) -> None:
    world = World(seed, follow, common=0.1, own=1.0, noise=0.5, size=200)
    assert world.run(Concord(), rounds=30, invited=10) < 0.005
    assert float(np.mean(world.cosines)) * follow > 0.3, "the world is not the one that is meant"


@pytest.mark.parametrize("follow", [-0.6, 0.3])
def test_the_last_step_tells_what_few_noisy_others_do_not(follow: float) -> None:
    """With six clients a round and 50 coordinates the others' mean is mostly noise."""
    with_past, without = (
        float(
            np.mean(
                [World(seed, follow, 0.15, 0.5, 1.0, 50).run(Concord(past=past), 40, 6) for seed in range(6)]
            )
        )
        for past in (1.0, 0.0)
    )
    assert with_past < 0.6 * without


def test_one_round_tells_less_than_the_mean_of_many() -> None:
    long, short = (
        float(
            np.mean(
                [
                    World(seed, -0.6, 0.15, 0.5, 1.0, 50).run(Concord(memory=memory), 40, 6)
                    for seed in range(4)
                ]
            )
        )
        for memory in (0.97, 0.0)
    )
    assert long < 0.25 * short


def test_what_lies_back_fades() -> None:
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


# Noise, length, copies


@SEEDS
@pytest.mark.parametrize("senders", [1, 3, 4])
def test_noise_does_not_count(senders: int, seed: int) -> None:
    """Its cosines with the others are as often above 0 as below: only that they are so small tells it."""
    updates = clean(seed)
    updates[:senders] = 1.4 * normal(2000 + seed, senders, 2000)
    weighed = weigh(Concord(), updates)
    assert weighed.weights[:senders].tolist() == [0.0] * senders
    assert weighed.evidence["reliability"][senders:].tolist() == [1.0] * (10 - senders)
    assert bool((weighed.evidence["agreement"][:senders] > 0).any() | (senders == 1))


@SEEDS
def test_ten_times_too_long_along_the_mean_moves_the_model_less_than_an_honest_update(seed: int) -> None:
    updates = clean(seed)
    updates[0] = 10 * updates[1:].mean(dim=0)
    weighed = weigh(Concord(reach=3.0), updates)
    along = weighed.weights * (updates @ torch.nn.functional.normalize(updates[1:].mean(dim=0), dim=0))
    assert float(along[0]) < float(along[1:].min())
    assert float(weigh(Concord(), updates).weights[0]) > 0.09, "it is the reach that does it"


@SEEDS
def test_what_is_much_longer_than_the_median_is_held_even_if_it_goes_no_further_along(seed: int) -> None:
    """The long one's surplus is at right angles to all others. 1 up to 3 medians, then with the square."""
    updates = torch.cat([clean(seed), torch.zeros(10, 1, dtype=torch.float64)], dim=1)
    norms = updates.norm(dim=1)
    updates[0, -1] = 4 * float(norms.median())
    norms = updates.norm(dim=1)
    held = weigh(Concord(reach=3.0), updates).evidence["held"]
    near = (3 * norms.median() / norms[0]).square()
    assert 0.4 < float(near) < 0.6
    torch.testing.assert_close(held[0], near)
    assert held[1:].tolist() == [1.0] * 9


@SEEDS
def test_an_update_of_honest_length_that_goes_much_further_along_is_held(seed: int) -> None:
    """Honest updates of unequal clients have little in common; this one is nothing but that."""
    size, clients = 4000, 20
    updates = 0.2 * normal(seed, size) + normal(1000 + seed, clients, size)
    updates[0] = normal(seed, size) * updates[1].norm() / normal(seed, size).norm()
    directions = torch.nn.functional.normalize(updates, dim=1)
    others = torch.nn.functional.normalize(directions.sum(dim=0) - directions, dim=1)
    along = (updates * others).sum(dim=1)
    weighed = weigh(Concord(reach=1.2), updates)
    wanted = (1.2 * along.median() / along[0]).square()
    torch.testing.assert_close(weighed.evidence["held"][0], wanted, rtol=1e-2, atol=0)
    assert float(wanted) < 0.2
    assert float(weighed.evidence["held"][1:].min()) > 0.5


@SEEDS
def test_copies_share_one_vote(seed: int) -> None:
    updates = clean(seed)
    updates[:3] = updates[0] + 1e-3 * normal(2000 + seed, 3, 2000)
    weighed = weigh(Concord(), updates)
    torch.testing.assert_close(
        weighed.evidence["votes"][:3], torch.full((3,), 1 / 3).double(), rtol=1e-3, atol=0
    )
    assert float(weighed.weights[:3].sum()) == pytest.approx(1 / 8, rel=1e-2)
    assert float(weigh(Concord(crowd=0.0), updates).weights[:3].sum()) == pytest.approx(3 / 10, rel=1e-2)


@SEEDS
def test_copies_have_one_voice_among_the_others_too(seed: int) -> None:
    """Five copies of one reversed update are one voice against five."""
    updates = clean(seed, clients=10)
    updates[:5] = -updates[0] + 1e-3 * normal(2000 + seed, 5, 2000)
    weighed = weigh(Concord(), updates)
    assert float(weighed.evidence["agreement"][5:].min()) > 0 > float(weighed.evidence["agreement"][:5].max())
    assert float(weigh(Concord(crowd=0.0), updates).evidence["agreement"][:5].min()) > 0


# What is remembered


def after_rounds(rounds: int, reversed: Sequence[int] = (0,)) -> State:
    state: State = {}
    for number in range(rounds):
        updates = clean(number)
        updates[list(reversed)] *= -1
        state = weigh(Concord(), updates, state).state
    return state


def test_a_newcomer_is_trusted() -> None:
    updates = clean(99)
    weighed = weigh(Concord(), updates, after_rounds(12), ["new", *map(str, range(1, 10))])
    assert float(weighed.evidence["reliability"][0]) == 1
    torch.testing.assert_close(weighed.weights, torch.full_like(weighed.weights, 0.1), rtol=1e-3, atol=0)


def test_one_contrary_round_does_not_silence_a_newcomer_and_several_do() -> None:
    state = after_rounds(12, reversed=())
    trusts = []
    for number in range(99, 103):
        updates = clean(number)
        updates[0] *= -1
        weighed = weigh(Concord(), updates, state, ["new", *map(str, range(1, 10))])
        trusts.append(float(weighed.evidence["reliability"][0]))
        state = weighed.state
    assert 0.05 < trusts[0] < 0.95
    assert trusts[-1] == 0


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


# Where there is nothing to find


def test_equal_clients_count_by_their_samples() -> None:
    """A common direction, and an axis of one's own: all are equally far from each other, in every round."""
    counts = [1.0, 2.0, 3.0, 10.0, 4.0]
    updates = torch.eye(5, 6, dtype=torch.float64)
    updates[:, -1] = 0.5
    state = None
    for _ in range(4):
        weighed = weigh(Concord(), updates, state, counts=counts)
        state = weighed.state
        torch.testing.assert_close(weighed.weights, torch.tensor(counts).double() / 20, rtol=1e-9, atol=0)


@SEEDS
def test_honest_clients_count_by_their_samples(seed: int) -> None:
    counts = [float(1 + position) for position in range(10)]
    state = None
    for number in range(5):
        weighed = weigh(Concord(), clean(10 * seed + number), state, counts=counts)
        state = weighed.state
        torch.testing.assert_close(weighed.weights, torch.tensor(counts).double() / 55, rtol=1e-4, atol=0)


NOTHING = {
    "identical": torch.ones(4, 3),
    "zero": torch.zeros(4, 3),
    "one client": torch.ones(1, 3),
    "one client that did not move": torch.zeros(1, 3),
    "two that oppose each other": torch.tensor([[1.0, 0.0], [-1.0, 0.0]]),
    "two at right angles": torch.eye(2),
    "all at right angles": torch.eye(4),
    "one of four moved": torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.0, 0.0]]),
    "lengths apart": torch.tensor([[1e-30, 0.0], [1e30, 1e30], [1.0, 0.5]]),
}


@pytest.mark.parametrize("name", NOTHING)
def test_degenerate_rounds_have_finite_weights(name: str) -> None:
    state = None
    for _ in range(4):
        weighed = weigh(
            Concord(), NOTHING[name].double(), state, counts=[1.0, 2.0, 3.0, 4.0][: len(NOTHING[name])]
        )
        state = weighed.state
        assert float(weighed.weights.min()) >= 0
        assert float(weighed.weights.sum()) == pytest.approx(1)
        assert all(bool(value.isfinite().all()) for value in {**state, **weighed.evidence}.values())
        if name in ("identical", "zero", "all at right angles", "two that oppose each other"):
            wanted = torch.arange(1.0, 1 + len(weighed.weights)).double()
            torch.testing.assert_close(weighed.weights, wanted / wanted.sum())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tolerance", 0.0), ("tolerance", -1.0), ("tolerance", math.nan), ("past", -0.1), ("past", math.nan),
        ("memory", -0.1), ("memory", 1.1), ("memory", math.nan), ("reach", 0.9), ("reach", math.nan),
        ("crowd", -0.1), ("crowd", math.nan),
    ],
)  # fmt: skip
def test_a_setting_that_has_no_meaning_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"'concord': {name} must be .* not {value}"):
        Concord(**{name: value})
