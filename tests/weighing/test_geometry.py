"""The geometry of a round, against exact sums: products of float32 numbers are exact in float64."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from steelyard.weighing.geometry import Geometry
from steelyard.weighing.reading import Updates, block_width

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


def on_disk(rows: Tensor, folder: Path) -> Updates:
    np.save(folder / "rows.npy", rows.numpy())
    return np.load(folder / "rows.npy", mmap_mode="r")


FORMS: dict[str, Callable[[Tensor, Path], Updates]] = {
    "matrix": lambda rows, folder: rows,
    "list": lambda rows, folder: list(rows),
    "file": on_disk,
}
WEIGHTS = {
    "sum to 1": torch.tensor([0.1, 0.5, 0.2, 0.3, -0.1], dtype=torch.float64),
    "sum to less": torch.tensor([0.1, 0.2, 0.1, 0.3, 0.0], dtype=torch.float64),
}


def plain() -> Tensor:
    return updates(2 * block_width(5) + 17, clients=5)


def with_much_in_common() -> Tensor:
    rows = plain()
    return rows + 1e6 * updates(rows.shape[1], clients=1)


def with_an_outlier() -> Tensor:
    rows = plain()
    rows[3] *= 1e10
    return rows


SCENES = {"plain": plain, "common 1e6": with_much_in_common, "outlier 1e10": with_an_outlier}


def squares(differences: Any) -> Tensor:
    return torch.from_numpy((differences**2).sum(axis=-1))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_all_that_rules_ask_for_is_what_differences_of_the_rows_say(
    scene: Callable[[], Tensor], form: Callable[[Tensor, Path], Updates], tmp_path: Path
) -> None:
    rows = scene()
    wide, geometry = rows.numpy().astype(np.float64), Geometry(form(rows, tmp_path))
    pairwise = torch.stack([squares(wide - row) for row in wide])
    torch.testing.assert_close(geometry.pairwise, pairwise, rtol=1e-6, atol=0)
    some = WEIGHTS["sum to 1"]
    weights = some * (torch.arange(5) != 3) / (1 - some[3]) if scene is with_an_outlier else some
    centred = wide - weights.numpy() @ wide
    torch.testing.assert_close(geometry.distances(weights), squares(centred), rtol=1e-6, atol=0)
    around = torch.from_numpy(centred @ centred.T)
    lengths = around.diagonal().sqrt()
    error = (geometry.around(weights) - around).abs() / lengths.unsqueeze(0) / lengths.unsqueeze(1)
    assert float(error.max()) < 1e-6
    mixed = torch.from_numpy(weights.numpy() @ wide)
    tolerance = 1e-6 * float(torch.from_numpy(wide).abs().max())
    torch.testing.assert_close(geometry.mix(weights).double(), mixed, rtol=0, atol=tolerance)


def test_distances_from_a_point_whose_weights_do_not_sum_to_1() -> None:
    rows, weights = plain(), WEIGHTS["sum to less"]
    wide = rows.numpy().astype(np.float64)
    naive = squares(wide - weights.numpy() @ wide)
    torch.testing.assert_close(Geometry(rows).distances(weights), naive, rtol=1e-10, atol=0)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_blended_updates_have_the_geometry_of_the_blend(
    form: Callable[[Tensor, Path], Updates], tmp_path: Path
) -> None:
    rows, weights = with_much_in_common(), WEIGHTS["sum to 1"]
    mixing = torch.rand(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mixing /= mixing.sum(dim=1, keepdim=True)
    blended = Geometry(form(rows, tmp_path)).blended(mixing)
    wide = mixing.numpy() @ rows.numpy().astype(np.float64)
    centred = wide - weights.numpy() @ wide
    vector = torch.linspace(-1, 2, rows.shape[1])
    inner = torch.from_numpy(wide @ vector.double().numpy())
    torch.testing.assert_close(blended.distances(weights), squares(centred), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        blended.pairwise, torch.stack([squares(wide - row) for row in wide]), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(blended.norms, squares(wide).sqrt(), rtol=1e-9, atol=0)
    torch.testing.assert_close(blended.inner(vector), inner, rtol=1e-9, atol=0)
    mixed = torch.from_numpy(weights.numpy() @ wide)
    torch.testing.assert_close(blended.mix(weights).double(), mixed, rtol=1e-5, atol=1.0)
