"""The experiment with adapters in small: `steelyard reproduce adapters` runs it in full."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft", reason="the extra [adapters] is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

FOLDER = Path(__file__).parents[2] / "experiments" / "adapters"


def plays(size: Any) -> tuple[str, dict[str, str]]:
    """A text in place of Shakespeare's."""
    lines = "What says my lord?\nNothing, my liege: I come to speak with thee!\n"
    return 20 * lines, {name: 8 * (f"{name}, thou art late.\n" + lines) for name in ("Ann", "Bob", "Cid")}


def test_every_cell_of_a_setting_meets_the_same_training() -> None:
    from studies import SEEDS, cells

    todo = list(cells(quick=False))
    assert {cell.study for cell in todo} == {"merging", "attacks"}
    for setting in {cell.setting for cell in todo}:
        alike = [cell for cell in todo if cell.setting == setting]
        assert len({(cell.rounds, cell.steps, cell.ranks) for cell in alike}) == 1
        assert {cell.seed for cell in alike} == set(SEEDS)


def test_the_quick_version_writes_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import reproduce

    import studies

    monkeypatch.setattr(studies, "texts", plays)
    todo = [
        cell for cell in reproduce.cells(quick=True) if "samples" in cell.setting or "ranks" in cell.setting
    ]
    todo += [cell for cell in reproduce.cells(quick=True) if cell.setting == "6 rounds of 30 steps"]
    monkeypatch.setattr(reproduce, "cells", lambda quick: todo)
    monkeypatch.setattr(reproduce, "WORKERS", 1)
    files = reproduce.main(tmp_path, quick=True, say=lambda text: None)
    names = {"results.json", "merging.md", "attacks.md", "hostile-weight.md", "costs.md"}
    assert {file.name for file in files} == names
    assert all(file.stat().st_size > 0 for file in files)
    merging = json.loads((tmp_path / "results.json").read_text())["merging"]["6 rounds of 30 steps"]
    exact, reduced = (merging[f"product, {name}"]["0"] for name in ("exact", "rank 4"))
    assert max(exact["rank_error"]) < 1e-6 < min(reduced["rank_error"])
    assert reduced["bytes"] < exact["bytes"] < reduced["bytes_of_whole_models"]
