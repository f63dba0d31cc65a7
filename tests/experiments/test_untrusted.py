"""The experiments on untrusted clients, in small: `steelyard reproduce untrusted` runs them in full."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from steelyard.cli import app
from steelyard.studies.grid import read_grid, run_grid

FOLDER = Path(__file__).parents[2] / "experiments" / "untrusted"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_cell_of_every_grid_can_be_built(path: Path) -> None:
    grid = read_grid(path)
    assert len(grid.cells()) == len(grid.rows.labels) * len(grid.columns.labels) * len(grid.panels.labels)


def test_linear_regression_without_overlap_ivar_is_the_oracle_and_with_a_clique_icov_is_near_it() -> None:
    from linear import one_round

    table = one_round(range(200, 204))
    alone, clique = table["no overlap"], table["clique of 3, 90 % shared"]
    assert alone["IVAR-VB"] < 1.06 * alone["oracle"]  # of 4 draws; 1.03 is for the mean of 20
    assert alone["IVAR-VB"] < alone["geometric median"] < alone["uniform"]
    assert clique["ICOV-EM"] < 1.15 * clique["oracle"]
    assert clique["ICOV-EM"] < min(clique["IVAR-VB"], clique["geometric median"])


def test_rules_with_memory_work_if_clients_miss_rounds() -> None:
    from linear import over_rounds

    errors = over_rounds([200], participation=0.6, rows=150, rounds=3)
    assert len(errors) == 10
    assert errors["oracle"] < min(errors["uniform"], errors["coordinate median"], errors["IVAR-MLE"])


def test_one_round_of_logistic_regression_on_digits() -> None:
    """(b) in small: 5 honest clients, and 0 or 5 that send noise."""
    small = {"data.dataset": "digits", "training.epochs": 20}
    rows = {"weighing": ["uniform", "ivar-vb"]}
    grid = read_grid(FOLDER / "logistic.toml", small, rows=rows, columns={"adversaries.count": [0, 5]})
    accuracy = {cell.place[1:]: outcome.metrics["accuracy"] for cell, outcome in run_grid(grid, None)}
    assert accuracy["uniform", "0"] > 0.8
    assert accuracy["ivar-vb", "5"] > accuracy["uniform", "0"] - 0.02
    assert accuracy["uniform", "5"] < 0.5


def test_tables_and_figures_are_written(tmp_path: Path) -> None:
    from linear import SETTINGS
    from reproduce import PAPER, write

    rules = [rule for rule in PAPER if rule != "oracle"]
    lines = {rule: {1: 0.5, 2: 0.6} for rule in rules}
    by_rule = dict.fromkeys(PAPER, 1.0)
    results = {
        "linear": dict.fromkeys(SETTINGS, by_rule),
        "participation": {0.4: by_rule, 1.0: by_rule},
        "batch": {25: by_rule, 50: by_rule},
        "logistic": {"0": lines, "5": lines},
        "sgd": {"0": lines, "5": lines},
        "shakespeare": {"none": lines, "random vectors": lines, "random labels": lines},
    }
    files = write(results, tmp_path)
    assert len(files) == 5
    assert all(file.stat().st_size > 500 for file in files)
    assert "| IVAR-VB | 4.62 | 0.894 | 0.56 | 1.00 |" in (tmp_path / "table1.md").read_text()


def test_an_unknown_paper_is_refused_with_those_there_are() -> None:
    result = CliRunner().invoke(app, ["reproduce", "untrustd"])
    assert result.exit_code == 2
    assert "untrusted" in result.output
