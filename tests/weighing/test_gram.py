"""The Gram pass: one read, the same bits for any number of threads and any form of the updates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from steelyard.threads import one_thread
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.gram import PARTS, GramPass, gram_pass, norms_of, parts_of
from steelyard.weighing.reading import Updates, block_width, blocks

CLIENTS = 70  # more than a panel
SIZE = 5 * block_width(CLIENTS) + 17


def updates(dtype: torch.dtype = torch.float32, clients: int = CLIENTS, size: int = SIZE) -> Tensor:
    random = torch.Generator().manual_seed(size)
    return torch.randn(clients, size, generator=random, dtype=dtype) + torch.randn(size, generator=random)


def mapped(rows: Tensor, folder: Path) -> Any:
    path = folder / "rows.npy"
    np.save(path, rows.numpy())
    return np.load(path, mmap_mode="r")


FORMS: dict[str, Callable[[Tensor, Path], Updates]] = {
    "list": lambda rows, _: list(rows),
    "columns first": lambda rows, _: rows.T.contiguous().T,
    "every second column": lambda rows, _: rows.repeat_interleave(2, dim=1)[:, ::2],
    "file": mapped,
    "rows of a file": lambda rows, folder: list(mapped(rows, folder)),
    "every second row of a file": lambda rows, folder: mapped(rows.repeat_interleave(2, dim=0), folder)[::2],
    "columns backwards in a file": lambda rows, folder: mapped(rows.flip(1), folder)[:, ::-1],
}


def same_bits(one: GramPass, other: GramPass) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in (
            (one.norms, other.norms),
            (one.products.gram, other.products.gram),
            (one.products.along, other.products.along),
            (one.products.square, other.products.square),
        )
    )


def with_cores(number: int, monkeypatch: pytest.MonkeyPatch, form: Updates) -> GramPass:
    monkeypatch.setattr("steelyard.threads.cores", lambda: number)
    return gram_pass(form)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number_of_threads_gives_the_same_bits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = updates(dtype)
    expected = with_cores(1, monkeypatch, rows)
    assert len(parts_of(rows)) > 3
    for number in (2, 3):
        assert same_bits(with_cores(number, monkeypatch, rows), expected)
        with one_thread():
            assert same_bits(with_cores(number, monkeypatch, rows), expected)


@pytest.mark.parametrize("panel", [32 << 20, 1 << 20])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_any_form_of_the_updates_gives_the_same_bits(
    form: Callable[[Tensor, Path], Updates], panel: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.weighing.reading.PANEL_BYTES", panel)
    rows = updates()
    found = form(rows, tmp_path)
    assert same_bits(gram_pass(found), gram_pass(rows))
    weights = torch.linspace(-1, 2, CLIENTS, dtype=torch.float64)
    torch.testing.assert_close(
        Geometry(found).mix(weights), Geometry(rows).mix(weights), rtol=1e-4, atol=1e-4
    )
    assert torch.equal(Geometry(found).inner(rows[0]), Geometry(rows).inner(rows[0]))


@pytest.mark.parametrize(("clients", "size"), [(1, 1), (3, 100), (70, 5000), (2000, 300), (20, 10**6)])
def test_parts_are_whole_blocks_that_cover_all_coordinates(clients: int, size: int) -> None:
    parts = parts_of(torch.empty(clients, 1).expand(clients, size))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == size
    assert len(parts) <= PARTS
    assert all(part.start % block_width(clients) == 0 < part.stop - part.start for part in parts)


def test_norms_alone_are_those_of_the_pass() -> None:
    rows = updates()
    assert torch.equal(norms_of(rows), gram_pass(rows).norms)


def bad() -> dict[str, Tensor]:
    plain = updates(clients=7)
    scale = torch.tensor([1e-8, 1, 1, 1e10, 1, 1e8, 1]).unsqueeze(1)
    extreme = plain.clone()
    extreme[:3, : SIZE // 2] *= 1e12  # three of seven are extreme in one half,
    extreme[3:6, SIZE // 2 :] *= 1e12  # another three in the other
    return {
        "large offset": plain + 1e6,
        "lengths": plain * scale,
        "extreme in halves": extreme,
        "wide": plain.double() + 1e9,
    }


@pytest.mark.parametrize("name", bad())
def test_errors_of_distances_are_small_beside_the_distances(name: str) -> None:
    rows = bad()[name]
    wide = rows.numpy().astype(np.longdouble)
    exact = np.stack([((wide - row) ** 2).sum(axis=1) for row in wide]).astype(np.float64)
    found = Geometry(rows, paired=True)
    torch.testing.assert_close(found.pairwise, torch.from_numpy(exact), rtol=1e-9, atol=0)
    norms = torch.from_numpy(np.sqrt((wide**2).sum(axis=1)).astype(np.float64))
    torch.testing.assert_close(found.norms, norms, rtol=1e-12, atol=0)


def test_one_extreme_update_does_not_blur_the_distances_of_others() -> None:
    """Wherever it is extreme, another one is the reference."""
    rows = updates(clients=5)
    expected = Geometry(rows).pairwise[:4, :4]
    rows[4, 100:] = 1e30
    torch.testing.assert_close(Geometry(rows).pairwise[:4, :4], expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("form", ["matrix", *FORMS])
def test_a_rule_that_needs_products_reads_the_updates_once(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(*args: Any, **options: Any) -> Any:
        for columns, block in blocks(*args, **options):
            read.append(columns.stop - columns.start)
            yield columns, block

    monkeypatch.setattr("steelyard.weighing.gram.blocks", counted)
    rows = updates()
    geometry = Geometry(FORMS[form](rows, tmp_path) if form in FORMS else rows, paired=True)
    _ = geometry.norms, geometry.gram, geometry.pairwise, geometry.norms
    assert sum(read) == SIZE
