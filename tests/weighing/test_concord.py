"""Concord: noise and updates that are too long lose their weight, honest clients count by their samples."""

import math
from typing import Any

import pytest
import torch
from concord_updates import SEEDS, clean, cosines_with_others, normal, weigh

from steelyard.errors import InputError
from steelyard.weighing import Concord, concord

# Noise, length


@SEEDS
@pytest.mark.parametrize("senders", [1, 3, 4])
def test_noise_does_not_count(senders: int, seed: int) -> None:
    """Its cosines with the others are positive or negative by chance; only their small size shows noise."""
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
    weighed = weigh(Concord(), updates)
    along = weighed.weights * (updates @ torch.nn.functional.normalize(updates[1:].mean(dim=0), dim=0))
    assert 0 < float(along[0]) < float(along[1:].min())
    free = weigh(Concord(reach=math.inf), updates)
    assert float(free.weights[0]) == pytest.approx(0.1), "the reach limits it"
    assert free.evidence["length_factor"].tolist() == [1.0] * 10


@SEEDS
@pytest.mark.parametrize("medians", [2, 20, 2000])
def test_an_update_of_any_length_that_goes_sideways_is_not_limited(medians: float, seed: int) -> None:
    """The excess length is orthogonal to all others, as for a client with classes of its own."""
    updates = torch.cat([clean(seed), torch.zeros(10, 1, dtype=torch.float64)], dim=1)
    updates[0, -1] = medians * float(updates.norm(dim=1).median())
    assert weigh(Concord(), updates).evidence["length_factor"].tolist() == [1.0] * 10


@SEEDS
@pytest.mark.parametrize("reach", [0.3, 1.0, 1.5])
def test_beyond_the_reach_weight_falls_with_the_square_of_the_common_length(reach: float, seed: int) -> None:
    updates = clean(seed) * (1.2 * normal(3000 + seed, 10, 1)).exp()
    norms = updates.norm(dim=1)
    along = norms * cosines_with_others(updates)
    limit = reach * norms.sort().values[4]  # of ten, the lower one in the middle
    wanted = torch.where(along > limit, (limit / along).square(), 1.0)
    weighed = weigh(Concord(reach=reach), updates)
    torch.testing.assert_close(weighed.evidence["length_factor"], wanted, rtol=1e-9, atol=0)
    torch.testing.assert_close(weighed.weights, wanted / wanted.sum(), rtol=1e-9, atol=0)
    assert int((wanted < 1).sum()) > 0


@SEEDS
def test_the_common_length_is_measured_along_trusted_clients_only(seed: int) -> None:
    updates = clean(seed)
    updates[0] = 10 * updates[1:].mean(dim=0)
    updates[7:] *= -1
    updates[9] *= 10
    weighed = weigh(Concord(), updates)
    assert weighed.evidence["reliability"][7:].tolist() == [0.0] * 3
    others = torch.nn.functional.normalize(updates[1:7], dim=1).sum(dim=0)
    along = float(updates[0] @ others / others.norm())
    wanted = (1.5 * float(updates.norm(dim=1).sort().values[4]) / along) ** 2
    assert float(weighed.evidence["length_factor"][0]) == pytest.approx(wanted, rel=1e-9)
    assert weighed.evidence["length_factor"][1:].tolist() == [1.0] * 9, (
        "updates in the opposite direction are not limited"
    )


# Rounds without adversaries, and degenerate ones


def test_equal_clients_count_by_their_samples() -> None:
    """A common direction plus an axis of its own: all updates have the same distance from each other."""
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
        torch.testing.assert_close(weighed.weights, torch.tensor(counts).double() / 55, rtol=1e-9, atol=0)


def test_if_no_client_is_trusted_all_count_by_their_samples() -> None:
    """One client always pointed against the others, the other always sent noise."""
    known = concord.History(*torch.tensor([[1.0, 1.0], [-1.0, 0.1], [50.0, 50.0], [50.0, 1e-4]]).double())
    state = {f"history/{client}": row for client, row in enumerate(torch.stack(known, dim=1))}
    weighed = weigh(Concord(), torch.eye(2, dtype=torch.float64), state, counts=[1.0, 3.0])
    assert weighed.evidence["reliability"].tolist() == [0.0, 0.0]
    assert weighed.weights.tolist() == [0.25, 0.75]


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


@pytest.mark.parametrize("reach", [1.5, math.inf])
@pytest.mark.parametrize("name", NOTHING)
def test_degenerate_rounds_have_finite_weights(name: str, reach: float) -> None:
    rule, state = Concord(reach=reach), None
    for _ in range(4):
        weighed = weigh(
            rule, NOTHING[name].double(), state, counts=[1.0, 2.0, 3.0, 4.0][: len(NOTHING[name])]
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
        ("tolerance", 0.0), ("tolerance", -1.0), ("tolerance", math.nan),
        ("memory", -0.1), ("memory", 1.1), ("memory", math.nan),
        ("reach", 0.0), ("reach", -1.0), ("reach", math.nan),
    ],
)  # fmt: skip
def test_a_setting_that_has_no_meaning_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"'concord': {name} must be .* not {value}"):
        Concord(**{name: value})


def test_settings_at_the_edge_are_accepted() -> None:
    for settings in (
        {"tolerance": 1e-9},
        {"memory": 0.0},
        {"memory": 1.0},
        {"reach": 1e-9},
        {"reach": math.inf},
    ):
        assert weigh(Concord(**settings), clean(0)).weights.isfinite().all()
