"""Rounds in which the honest clients are the larger camp, but neither mean cosine nor distances show it."""

import pytest
import torch
from torch import Tensor

from steelyard.functional import weigh
from steelyard.types import State


def reversed_near_copies(clients: int, hostile: int, seed: int) -> Tensor:
    """Updates that are nearly equal, of which the first `hostile` are reversed."""
    draw = torch.Generator().manual_seed(seed)
    common = torch.randn(1000, generator=torch.Generator().manual_seed(99))
    updates = common + 0.1 * torch.randn(clients, 1000, generator=draw)
    updates[:hostile] *= -1
    return updates


@pytest.mark.parametrize(("clients", "hostile"), [(10, 3), (10, 4), (20, 8), (100, 45)])
def test_concord_finds_reversed_updates_up_to_nearly_half(clients: int, hostile: int) -> None:
    """Here (honest − hostile)² ≤ J: the mean cosine of all pairs is not positive."""
    state: State | None = None
    for number in range(1, 6):
        weighed = weigh(reversed_near_copies(clients, hostile, number), "concord", round=number, state=state)
        state = weighed.state
    assert float(weighed.weights[:hostile].sum()) < 1e-9


def test_concord_trusts_no_camp_of_half_the_clients() -> None:
    weights = weigh(reversed_near_copies(10, 5, 0), "concord").weights
    torch.testing.assert_close(weights, torch.full_like(weights, 0.1), atol=0.01, rtol=0)


def among_noise(honest: int, noise: int, seed: int) -> Tensor:
    """Similar honest updates, and noise 30 times as long."""
    draw = torch.Generator().manual_seed(seed)
    common = torch.randn(5000, generator=draw)
    similar = common + 0.2 * torch.randn(honest, 5000, generator=draw)
    return torch.cat([similar, 30 * torch.randn(noise, 5000, generator=draw)])


@pytest.mark.parametrize("noise", range(0, 11, 2))
@pytest.mark.parametrize("seed", [0, 1])
def test_majority_finds_five_honest_clients_among_up_to_ten_that_send_noise(noise: int, seed: int) -> None:
    weighed = weigh(among_noise(5, noise, seed), "majority")
    assert float(weighed.weights[5:].sum()) < 1e-6
    torch.testing.assert_close(weighed.weights[:5], torch.full((5,), 0.2).double(), atol=0.01, rtol=0)
    assert float(weighed.evidence["votes"][:5].min()) > 0.9, "honest clients do not pass for copies"


@pytest.mark.parametrize(("together", "spread"), [(3, 0.01), (3, 0.5), (4, 0.01)])
def test_a_few_clients_that_agree_among_unrelated_ones_are_not_the_majority(
    together: int, spread: float
) -> None:
    """Honest clients may have little in common; then those that agree may work together."""
    draw = torch.Generator().manual_seed(0)
    updates = torch.randn(10, 5000, generator=draw)
    updates[:together] = updates[0] + spread * torch.randn(together, 5000, generator=draw)
    weighed = weigh(updates, "majority")
    assert float(weighed.weights[:together].sum()) < together / 10 + 0.01


@pytest.mark.parametrize("hostile", [0, 100, 180])
def test_many_clients_are_weighed_as_if_all_eigenvectors_were_computed(
    hostile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(hostile)
    updates = torch.randn(400, generator=draw) + 3 * torch.randn(400, 400, generator=draw)
    updates[:hostile] *= -1
    quick = weigh(updates, "majority").weights
    monkeypatch.setattr("steelyard.weighing.majority.MAX_DECOMPOSED", 10_000)
    torch.testing.assert_close(weigh(updates, "majority").weights, quick, rtol=1e-9, atol=1e-12)
    assert float(quick[:hostile].sum()) <= hostile / 1000
