"""`weigh` and `combine` on updates in a file: the same numbers, by parts, without taking it into memory."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from functional_rules import Spy, Widest
from steelyard import combine, components, functional, weigh
from steelyard.errors import InputError
from steelyard.weighing.reading import block_width


def on_disk(path: Path, rows: Tensor, mode: Any = "r") -> np.memmap:
    """The rows in a file, opened again."""
    np.save(path, rows.numpy())
    return np.load(path, mmap_mode=mode)


def unequal(clients: int = 7) -> Tensor:
    """Updates of different noise around a common part, in more than one block."""
    generator = torch.Generator().manual_seed(3)
    size = block_width(clients) + 5_000
    noise = torch.randn(clients, size, generator=generator)
    return torch.randn(size, generator=generator) + torch.linspace(0.5, 3, clients).unsqueeze(1) * noise


@pytest.mark.parametrize("rule", components.names("weighing"))
def test_a_list_a_matrix_and_a_file_weigh_the_same(rule: str, tmp_path: Path) -> None:
    rows = unequal()
    expected = weigh(rows, rule).weights
    for form in (list(rows), [row.numpy() for row in rows], on_disk(tmp_path / "rows.npy", rows)):
        torch.testing.assert_close(weigh(form, rule).weights, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("rule", [name for name in components.names("combining") if name != "low-rank"])
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_file_is_combined_by_parts(
    rule: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functional, "PART_BYTES", 8 * 7 * 30_000)
    rows, weights = unequal(), torch.tensor([1, 2, 3, 4, 3, 2, 1]) / 16
    variances = torch.ones_like(rows) if "variance" in components.find("combining", rule).needs else None  # type: ignore[attr-defined]
    combined = combine(on_disk(tmp_path / "rows.npy", rows, mode), weights, rule, variances=variances)
    at_once = combine(rows, weights, rule, variances=variances)
    torch.testing.assert_close(combined.mean, at_once.mean)
    torch.testing.assert_close(combined.variance, at_once.variance)
    assert (combined.variance is None) == (variances is None)


def test_variances_may_be_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "PART_BYTES", 8 * 7 * 30_000)
    rows = unequal()
    variances = on_disk(tmp_path / "variances.npy", rows.square())
    combined = combine(rows, rule=Widest(), variances=variances)
    assert combined.variance is not None
    assert torch.equal(combined.variance, rows.square().amax(dim=0))
    torch.testing.assert_close(combined.mean, rows.mean(dim=0))


def test_what_was_changed_in_memory_only_is_not_lost(tmp_path: Path) -> None:
    rows = unequal()
    private = on_disk(tmp_path / "rows.npy", rows, "c")
    private[2] = 0.0
    for updates in (private, private.copy()):
        assert weigh(updates, Spy()).evidence["norm"][2].item() == 0.0
        assert not private[2].any()


@pytest.mark.parametrize("broken", [float("nan"), float("-inf"), 2e30])
def test_a_broken_row_of_a_file_is_named(broken: float, tmp_path: Path) -> None:
    rows = torch.ones(3, 5)
    rows[1, 4] = broken
    updates = on_disk(tmp_path / "rows.npy", rows)
    with pytest.raises(InputError, match=r"^updates: row 1 is not finite, or beyond 1e\+30"):
        weigh(updates, "uniform")
    with pytest.raises(InputError, match=r"^means: row 1 is not finite, or beyond 1e\+30"):
        combine(updates)


def test_a_file_of_other_numbers_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must contain float32 or float64, not int64"):
        weigh(on_disk(tmp_path / "rows.npy", torch.ones(2, 3, dtype=torch.int64)))
    with pytest.raises(InputError, match=r"must be a matrix .* not of shape \(3,\)"):
        weigh(on_disk(tmp_path / "row.npy", torch.ones(3)))


MEMORY = """
import sys
from pathlib import Path
import numpy as np
from steelyard import combine, weigh

def megabytes():  # not ru_maxrss, which begins with that of the parent process
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

shape, rng = (100, 1_000_000), np.random.default_rng(0)
with open(sys.argv[1], "wb") as file:
    for _ in range(shape[0]):
        file.write(rng.standard_normal(shape[1], dtype=np.float32))
small = rng.standard_normal((100, 1000), dtype=np.float32)
for rule in ("mean", "median"):
    combine(small, weigh(small, "ivar-vb").weights, rule)
before = megabytes()
rows = np.memmap(sys.argv[1], dtype=np.float32, mode="r", shape=shape)
weights = weigh(rows, "ivar-vb").weights
for rule in ("mean", "median"):
    combine(rows, weights, rule)
print(megabytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_file_is_not_taken_into_memory(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 2e9:
        pytest.skip("needs a file of 400 MB")
    path = tmp_path / "rows"
    command = [sys.executable, "-W", "error", "-c", MEMORY, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    path.unlink(missing_ok=True)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < 200


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_rows_of_a_file_that_are_too_long_are_left_out(tmp_path: Path, mode: str) -> None:
    rows = 1 + 0.1 * torch.randn(6, 3000, generator=torch.Generator().manual_seed(0))
    rows[2] *= 1e15
    file = on_disk(tmp_path / "rows.npy", rows, mode)
    for rule in ("ivar-vb", "majority"):
        weighed = weigh(file, rule)
        assert torch.equal(weighed.weights, weigh(rows, rule).weights)
        assert float(weighed.weights[2]) == 0
        torch.testing.assert_close(combine(file, weighed).mean, combine(rows, weighed).mean)
