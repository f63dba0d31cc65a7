"""The geometry of a round, against exact sums: products of float32 numbers are exact in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from steelyard.geometry import Geometry, block_width

BLOCK = block_width(3)
SIZES = [1, 100, BLOCK, 2 * BLOCK + 17]


def exact(a: Tensor, b: Tensor) -> float:
    return math.fsum((a.double() * b.double()).tolist())


def updates(size: int, clients: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(clients, size, dtype=dtype, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("size", SIZES)
def test_gram_norms_and_inner_products_are_exact_sums_over_all_coordinates(size: int) -> None:
    rows = updates(size)
    vector = torch.linspace(-1, 2, size)
    geometry = Geometry(rows)
    products = torch.tensor([[exact(a, b) for b in rows] for a in rows], dtype=torch.float64)
    inner = torch.tensor([exact(row, vector) for row in rows], dtype=torch.float64)
    torch.testing.assert_close(geometry.gram, products, rtol=1e-12, atol=1e-13 * size)
    torch.testing.assert_close(geometry.norms, products.diagonal().sqrt(), rtol=1e-12, atol=0)
    torch.testing.assert_close(geometry.inner(vector), inner, rtol=1e-12, atol=1e-9)


def test_a_huge_common_component_does_not_drown_the_differences() -> None:
    rows = 1000 + 0.1 * updates(2 * BLOCK + 17)
    gram = Geometry(rows).gram
    wide = rows.numpy().astype(np.float64)
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        distance = float(gram[i, i] - 2 * gram[i, j] + gram[j, j])
        assert distance == pytest.approx(float(((wide[i] - wide[j]) ** 2).sum()), rel=1e-5)


def test_tiny_and_huge_updates_neither_vanish_nor_overflow() -> None:
    rows = torch.tensor([[1e-30, 0.0], [0.0, 1e30], [1e30, 1e30]])
    expected = [1e-30, 1e30, math.sqrt(2) * 1e30]
    assert Geometry(rows).norms.tolist() == pytest.approx(expected, rel=1e-6)
    assert bool(torch.isfinite(Geometry(rows).gram).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mix_is_the_weighted_sum_in_the_dtype_of_the_updates(dtype: torch.dtype) -> None:
    rows = updates(2 * BLOCK + 17, dtype=dtype)
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    mixed = Geometry(rows).mix(weights)
    naive = sum(float(weight) * row.double() for weight, row in zip(weights, rows, strict=True))
    assert mixed.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(mixed.double(), naive, rtol=tolerance, atol=tolerance)


def test_a_vector_of_another_length_is_not_silently_cut() -> None:
    geometry = Geometry(updates(BLOCK + 5))
    for size in (BLOCK, BLOCK + 4, 2 * BLOCK + 5):
        with pytest.raises((ValueError, RuntimeError)):
            geometry.inner(torch.ones(size))


def test_the_length_is_the_number_of_clients() -> None:
    assert len(Geometry(updates(10, clients=4))) == 4
