"""The BA-BFL experiments in small: `steelyard reproduce ba-bfl` runs them in full."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "ba-bfl"


def test_every_cell_can_be_built_and_all_methods_of_a_setting_meet_the_same_clients() -> None:
    from studies import SEEDS, cells

    todo = list(cells(quick=False))
    assert {cell.study for cell in todo} == {"table", "attacks", "priors"}
    assert {cell.seed for cell in todo} == set(SEEDS)
    for cell in todo:
        alike = [other.spec for other in todo if other[:2] == cell[:2] and other.seed == cell.seed]
        assert all((spec.data, spec.training) == (cell.spec.data, cell.spec.training) for spec in alike)
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
    assert names >= {"results.json", "table-fashionmnist.md", "attacks.md", "priors.md", "sigma.png"}
    assert names >= {f"figure{number}.png" for number in range(1, 6)}
    table = json.loads((tmp_path / "results.json").read_text())["studies"]["table"]["FashionMNIST"]
    assert set(table) == {"0 FedAvg", "1 RKLB", "2 RKLB", *(f"3 {name}" for name in reproduce.figures.RULES)}
    for runs in table.values():
        (run,) = runs.values()
        assert run["temperature"] > 0
        assert run["nll"] > 0
