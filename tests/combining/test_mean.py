"""The weighted mean: exact to rounding."""

import pytest
import torch

from steelyard.combining import Mean
from steelyard.types import Stack


@pytest.mark.parametrize("clients", [1, 7])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_the_mean_is_the_sum_of_all_weighted_rows(clients: int, size: int) -> None:
    rows, weights = torch.randn(clients, size), torch.rand(clients, dtype=torch.float64)
    merged = Mean().combine(Stack(rows, None), weights).mean
    expected = (weights.unsqueeze(1) * rows.double()).sum(0)
    assert merged.dtype == torch.float32
    torch.testing.assert_close(merged.double(), expected, rtol=1e-5, atol=1e-5)
