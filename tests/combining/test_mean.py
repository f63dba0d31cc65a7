"""The weighted mean: exact to rounding, with the same bits on one core and on several."""

import pytest
import torch

from steelyard.combining import Mean, mean
from steelyard.types import Stack


@pytest.mark.parametrize("clients", [1, 7])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_the_mean_is_the_sum_of_all_weighted_rows(clients: int, size: int) -> None:
    rows, weights = torch.randn(clients, size), torch.rand(clients, dtype=torch.float64)
    merged = Mean().combine(Stack(rows, None), weights).mean
    expected = (weights.unsqueeze(1) * rows.double()).sum(0)
    assert merged.dtype == torch.float32
    torch.testing.assert_close(merged.double(), expected, rtol=1e-5, atol=1e-5)


def test_parts_make_the_same_sum_on_one_core_and_on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mean, "PART_VALUES", 1000)
    rows, weights = torch.randn(7, 1003), torch.rand(7)
    several = mean.weighted_sum(weights, rows)
    torch.testing.assert_close(several.double(), weights.double() @ rows.double(), rtol=1e-5, atol=1e-5)
    monkeypatch.setenv("STEELYARD_CORES", "1")
    assert torch.equal(mean.weighted_sum(weights, rows), several)
