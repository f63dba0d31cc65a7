"""The FedBaC experiments in small: `steelyard reproduce fedbac` runs them in full."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "fedbac"


def test_every_cell_can_be_built_and_all_methods_of_a_setting_meet_the_same_clients() -> None:
    from studies import FRESH_SEEDS, SEEDS, cells

    todo = list(cells(quick=False))
    assert {cell.study for cell in todo} == {"paper", "fresh", "attacks", "regimes", "ablation", "sweeps"}
    assert {cell.seed for cell in todo} == {*SEEDS, *FRESH_SEEDS}
    for cell in todo:
        alike = [other.spec for other in todo if other[:2] == cell[:2] and other.seed == cell.seed]
        assert all(
            (spec.data, spec.seed, spec.rounds) == (cell.spec.data, cell.seed, cell.spec.rounds)
            for spec in alike
        )
        assert all(spec.adversaries == cell.spec.adversaries for spec in alike)


def test_the_quick_version_writes_every_table_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report's methods and one cell of every other study, on digits, in this process."""
    import reproduce
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    texts, savefig = list[str](), Figure.savefig

    def saved(figure: Figure, path: Path, **how: Any) -> None:
        texts.extend(text.get_text() for text in figure.findobj(Text))
        savefig(figure, path, **how)

    monkeypatch.setattr(Figure, "savefig", saved)
    todo = list(reproduce.cells(quick=True))
    firsts = {
        (cell.study, cell.method if cell.study in ("paper", "fresh") else ""): cell for cell in reversed(todo)
    }
    monkeypatch.setattr(reproduce, "cells", lambda quick: list(firsts.values()))
    monkeypatch.setattr(reproduce, "WORKERS", 1)
    files = reproduce.main(tmp_path, quick=True, say=lambda text: None)
    assert all(file.stat().st_size > 0 for file in files)
    assert {file.name for file in files} >= {
        "results.json",
        "paper.md",
        "attacks.md",
        "figure3.png",
        "why.png",
    }
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results["studies"]["paper"]["MNIST, shards"]) == set(reproduce.CLAIMED) | {
        "FedProx",
        "FedBaC, stabilised",
    }
    paper = results["studies"]["paper"]["MNIST, shards"]
    assert paper["FedAvg"]["0"]["final"] > 0.5, "far from chance, although quick"
    assert "Digits in 40 shards, 20 clients, 10 a round, 10 rounds" in texts
    assert not any("MNIST" in text for text in texts), "pictures say what was run"


def test_every_signal_separates_honest_from_reversed_clients_if_all_take_part() -> None:
    """The second setting of the figure: all clients in every round, Dirichlet(0.3) on digits."""
    import why

    angles = why.measure(list(why.specs(quick=False, seed=0).values())[1])
    assert min(angles["honest"]["past"]) > max(angles["reversed"]["past"])
    assert min(angles["honest"]["present"]) > max(angles["reversed"]["present"])
    assert min(angles["honest"]["coherent"]) > 0 > max(angles["reversed"]["coherent"])


def test_thirty_percent_sign_flippers_cost_fedavg_far_more_than_the_stabilised_rule() -> None:
    import steelyard as sy

    attack = {"data.partition": {"name": "dirichlet", "alpha": 0.5}, "adversaries.count": 3, "rounds": 20}
    plain, stabilised = (sy.run(name, out=None, seed=0, **attack).accuracy for name in ("fedavg", "fedbac"))
    assert stabilised > plain + 0.1
    assert stabilised > 0.85
