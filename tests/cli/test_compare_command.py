"""steelyard compare"""

import json
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard

from steelyard.runs.reader import Run

WORDS = ("compare", "fedavg", "fedprox", *QUICK, "--seeds", "0,1")


def test_curves_are_drawn_as_the_name_of_the_file_says(place: Path) -> None:
    for name, start in (("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
        assert f"written: {name}" in output(steelyard(*WORDS, "--figure", name))
        assert (place / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.jpg", "missing/a.png"])
def test_a_figure_that_cannot_be_written_is_refused_before_anything_runs(place: Path, name: str) -> None:
    result = steelyard(*WORDS, "--figure", name)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert not (place / "runs").exists()
    assert not (place / "missing").exists()


def test_latex_has_a_row_for_each_spec() -> None:
    lines = output(steelyard(*WORDS, "--metric", "accuracy", "--latex")).splitlines()
    assert [line.split(" & ")[0] for line in lines if r"$\pm$" in line] == ["fedavg", "fedprox"]
    assert r"\toprule" in lines


def test_a_metric_is_chosen_and_an_unknown_one_gets_the_nearest_name() -> None:
    found = json.loads(output(steelyard(*WORDS, "--metric", "loss,nll", "--json")))
    assert [list(row["metrics"]) for row in found["rows"]] == [["loss", "nll"]] * 2
    result = steelyard(*WORDS, "--metric", "accuracyy")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: unknown metric 'accuracyy': did you mean 'accuracy'?\n",
    )


def test_recorded_runs_of_equal_settings_are_one_row(place: Path) -> None:
    ran = json.loads(output(steelyard(*WORDS, "--json")))["rows"]
    folders = sorted((place / "runs").iterdir())
    found = json.loads(output(steelyard("compare", *reversed(folders), "--json")))
    assert found["seeds"] == [0, 1]
    by_name = {row["name"]: row for row in found["rows"]}
    assert set(by_name) == {"fedavg", "fedprox"}  # without the changes that all have
    for row in ran:
        for metric, value in row["metrics"].items():
            assert by_name[row["name"]]["metrics"][metric] == pytest.approx(value)
        assert len(by_name[row["name"]]["runs"]) == 2


def test_rows_of_one_and_of_two_seeds_are_told_apart_on_a_narrow_terminal(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("data.partition=shards", "data.partition.shards=30", "training.momentum=0.5")
    output(steelyard(*WORDS[:2], *QUICK, *words, "--seeds", "0,1"))
    output(steelyard("run", "fedprox", *QUICK))
    monkeypatch.setenv("COLUMNS", "80")
    folders = sorted((place / "runs").iterdir())
    found = json.loads(output(steelyard("compare", *folders, "--json")))["rows"]
    assert [row["seeds"] for row in found] == [[0, 1], [0]]
    text = output(steelyard("compare", *folders))
    assert "over the runs of each row" in text.splitlines()[0]
    rows = [line.split() for line in text.splitlines() if line.startswith(("fedavg", "fedprox"))]
    for (_, runs, *scores), row in zip(rows, found, strict=True):
        assert runs == str(len(row["runs"]))
        assert scores == [f"{value['mean']:.4f}" for value in row["metrics"].values()]


def test_an_interruption_says_that_the_same_command_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steelyard.studies.comparison.compare", interrupted)
    result = steelyard(*WORDS)
    message = "error: interrupted; what is finished is recorded, and the same command continues.\n"
    assert (result.exit_code, result.stderr) == (130, message)


def test_recorded_runs_and_specs_are_not_mixed(finished: Path) -> None:
    for words in ((finished, "fedavg"), (finished, "rounds=3")):
        result = steelyard("compare", *words)
        assert (result.exit_code, result.stderr) == (
            2,
            "error: compare either recorded runs, without settings, or specs to run, not both.\n",
        )


def test_runs_in_which_nothing_happened_are_named_and_end_with_code_1() -> None:
    result = steelyard("compare", "fedavg", *QUICK, "training.lr=1e30", "--seeds", "0")
    assert result.exit_code == 1
    (path,) = Path("runs").iterdir()
    assert result.stderr.startswith(f"warning: {path}: no round changed the model")
    assert Run(path).meta["warning"]
