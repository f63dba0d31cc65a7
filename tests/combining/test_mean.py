"""The weighted mean: exact to rounding, whatever the number of coordinates and cores."""

import pytest
import torch

from steelyard.combining import Mean, mean
from steelyard.types import Stack


@pytest.mark.parametrize("clients", [1, 7])
@pytest.mark.parametrize("size", [0, 1, mean.PART_COLUMNS, 3 * mean.PART_COLUMNS + 5])
def test_the_mean_is_the_sum_of_all_weighted_rows(clients: int, size: int) -> None:
    rows, weights = torch.randn(clients, size), torch.rand(clients, dtype=torch.float64)
    merged = Mean().combine(Stack(rows, None), weights).mean
    expected = (weights.unsqueeze(1) * rows.double()).sum(0)
    assert merged.dtype == torch.float32
    torch.testing.assert_close(merged.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_mean_has_the_same_bits_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weights = torch.randn(20, 4 * mean.PART_COLUMNS - 3), torch.rand(20)
    several = mean.weighted_sum(weights, rows)
    monkeypatch.setenv("STEELYARD_CORES", "1")
    assert torch.equal(mean.weighted_sum(weights, rows), several)
