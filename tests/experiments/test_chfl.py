"""The CHFL experiments in small: `steelyard reproduce chfl` runs them in full."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from steelyard.layout import tensors_of
from steelyard.objectives.base import Local
from steelyard.sharing import Head
from steelyard.types import Broadcast

FOLDER = Path(__file__).parents[2] / "experiments" / "chfl"


def test_every_cell_can_be_built_and_all_methods_of_a_setting_meet_the_same_clients() -> None:
    from studies import DIGIT_SEEDS, TABULAR_SEEDS, cells

    todo = list(cells(quick=False))
    assert {cell.study for cell in todo} == {"table", "small", "teaching", "clients", "poison"}
    table = [cell for cell in todo if cell.study == "table"]
    assert len({cell.setting for cell in table}) == 10
    for cell in table:
        seeds = DIGIT_SEEDS if cell.setting.startswith("DIGIT") else TABULAR_SEEDS
        alike = [other for other in table if other[:3] == cell[:3]]
        assert [other.seed for other in alike] == list(seeds)
    for cell in table[::40]:
        alike = [other for other in table if other[:2] == cell[:2] and other.seed == cell.seed]
        assert {other.method for other in alike} >= {"SOLO", "AVG", "AVGKD", "KD", "KD, scrambled teacher"}
        for other in alike:
            assert (other.spec.data, other.spec.training) == (cell.spec.data, cell.spec.training)


def test_the_quick_version_writes_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import reproduce

    todo = [cell for cell in reproduce.cells(quick=True) if "Dirichlet" not in cell.setting]
    monkeypatch.setattr(reproduce, "cells", lambda quick: todo)
    monkeypatch.setattr(reproduce, "WORKERS", 1)
    files = reproduce.main(tmp_path, quick=True, say=lambda text: None)
    assert {file.name for file in files} >= {
        "claimed.md",
        "table-best.md",
        "poison.md",
        "shared-accuracy.png",
    }
    assert all(file.stat().st_size > 0 for file in files)
    studies = json.loads((tmp_path / "results.json").read_text())["studies"]
    for runs in studies["table"]["BCD, iid"].values():
        (run,) = runs.values()
        assert run["best"] >= run["client_accuracy"] > 0
        assert run["bytes"]["bytes"] < run["bytes"]["bytes_of_whole_models"]


def local_to(model: nn.Module, start: nn.Module) -> Local:
    sharing = Head()
    layout = sharing.layout(model)
    broadcast = Broadcast(2, sharing.read(tensors_of(start), layout), rounds=4)
    return Local(model, list(model.parameters()), broadcast, 5, layout)


def test_the_controls_teach_what_they_say() -> None:
    from controls import Scrambled, SelfTaught

    own, sent = (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)) for _ in range(2))
    embedding = torch.randn(6, 4)
    local = local_to(own, sent)
    assert torch.equal(Scrambled().teacher(local)(embedding), sent[1](embedding).roll(1, dims=1))
    assert torch.equal(SelfTaught().teacher(local)(embedding), own[1](embedding))


def test_differences_are_paired_by_seed() -> None:
    from reproduce import against

    base = {str(seed): {"x": value} for seed, value in enumerate((0.5, 0.6, 0.9, 0.2))}
    gaps = dict(zip(base, (0.1, 0.11, 0.09, 0.1), strict=True))
    better = {seed: {"x": run["x"] + gaps[seed]} for seed, run in base.items()}
    assert against(base, base, "x") == "55.0 ± 28.9"
    assert against(base, better, "x").startswith("65.0 ± 28.5 (+10.0, p 0.0001")
    assert against(base, {}, "x") == ""


def test_stars_are_for_gaps_that_are_not_by_chance() -> None:
    from reproduce import points

    base = {str(seed): {"x": 0.5} for seed in range(4)}
    for gaps, wanted in {
        (0.1, 0.11, 0.09, 0.1): "+10.0**",
        (0.1, 0.2, 0.05, 0.12): "+11.8*",
        (-0.1, 0.1, 0.2, 0.0): "+5.0",
        (0.0, 0.0, 0.0, 0.0): "+0.0",
    }.items():
        runs = {seed: {"x": 0.5 + gap} for seed, gap in zip(base, gaps, strict=True)}
        assert points(base, runs, "x") == wanted
