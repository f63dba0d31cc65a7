"""The BA-BFL experiments in small: `steelyard reproduce ba-bfl` runs them in full."""

import json
from pathlib import Path

import pytest
import torch

from steelyard.data.digits import digits
from steelyard.data.shifts import noise
from steelyard.metrics import Bins

FOLDER = Path(__file__).parents[2] / "experiments" / "ba-bfl"


def test_every_cell_can_be_built_and_all_methods_of_a_setting_meet_the_same_clients() -> None:
    from studies import SEEDS, cells

    todo = list(cells(quick=False))
    assert {cell.study for cell in todo} == {"table", "attacks", "priors"}
    assert {cell.seed for cell in todo} == set(SEEDS)
    for cell in todo:
        alike = [other.spec for other in todo if other[:2] == cell[:2] and other.seed == cell.seed]
        assert all(spec.data == cell.spec.data for spec in alike)
        training = [{**spec.training, "weight_decay": 0.0} for spec in (cell.spec, *alike)]  # MAP has one
        assert all(each == training[0] for each in training)
        assert all(spec.adversaries == cell.spec.adversaries for spec in alike)


def test_the_quick_version_writes_every_table_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One data set's table, one attack and all priors, on digits, in this process."""
    import reproduce

    todo = [cell for cell in reproduce.cells(quick=True) if cell.setting in ("FashionMNIST", "none")]
    monkeypatch.setattr(reproduce, "cells", lambda quick: todo)
    monkeypatch.setattr(reproduce, "WORKERS", 1)
    files = reproduce.main(tmp_path, quick=True, say=lambda text: None)
    assert all(file.stat().st_size > 0 for file in files)
    names = {file.name for file in files}
    assert names >= {
        "results.json",
        "table-fashionmnist.md",
        "attacks.md",
        "priors.md",
        "rivals.md",
        "shift.md",
        "sigma.png",
        "reliability-fashionmnist.png",
    }
    assert names >= {f"figure{number}.png" for number in range(1, 6)}
    written = json.loads((tmp_path / "results.json").read_text())
    assert all(ratio > 0 for ratio in written["cost"]["FashionMNIST"].values())
    assert written["cost"]["FashionMNIST"]["0"] == 1
    table = written["studies"]["table"]["FashionMNIST"]
    rules = [f"{last} {name}" for last in (1, 2, 3) for name in reproduce.figures.RULES]
    assert list(table) == ["0 FedAvg", "0 MAP", *rules]
    for runs in table.values():
        (run,) = runs.values()
        assert run["temperature"] > 0
        assert run["nll"] > 0
    for method in ("0 FedAvg", "3 RKLB"):  # without a shift, the shift's study sees what the run itself saw
        (run,) = table[method].values()
        for score in ("accuracy", "nll", "nll_scaled"):
            assert run["shift"]["none"][score] == run[score]
        for suffix in ("", "_scaled"):
            assert Bins(*map(torch.tensor, run["bins"][suffix].values())).ece == pytest.approx(
                run["ece" + suffix]
            )


def test_a_shifted_test_set_keeps_its_labels_and_loses_what_the_shift_takes() -> None:
    from unseen import SHIFTS, shifted

    own = digits().test
    same, turned, noisy = (shifted(own, SHIFTS[name]) for name in ("none", "45°", "noise 30 %"))
    assert torch.equal(same.inputs, own.inputs[own.rows])
    for other in (turned, noisy):
        assert torch.equal(other.labels, own.labels)
        assert other.inputs.shape == same.inputs.shape
        assert other.inputs.float().sub(same.inputs.float()).abs().mean() > 20
    expected = noise(same.inputs, 1, 2, torch.Generator().manual_seed(0), std=0.3)
    assert torch.equal(noisy.inputs, expected)
