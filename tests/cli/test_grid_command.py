"""steelyard grid"""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard

from steelyard.runs.reader import Run, runs_in

AXES = ("--rows", "weighing=samples,uniform", "--columns", "data.partition=iid,shards", "--workers", 1)
FILE = """
preset = "fedavg"
rounds = 2
[data]
clients = 3
[training]
steps = 2
[grid]
rows = { weighing = ["samples", "uniform"] }
"""


def test_tables_pictures_and_csv_of_every_metric(place: Path) -> None:
    (place / "pictures").mkdir()
    files = ("--png", "pictures/heat.png", "--csv", "cells.csv")
    text = output(steelyard("grid", *QUICK, *AXES, "--seeds", "0,1", "--metric", "accuracy,nll", *files))
    assert text.count("worst") == 2
    assert len([line for line in text.splitlines() if line.startswith("uniform")]) == 2
    for name in ("heat-accuracy.png", "heat-nll.png"):
        assert (place / "pictures" / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert f"written: pictures/{name}" in text
    with (place / "cells.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 8
    assert len(runs_in(place / "runs")) == 8


def test_json_has_every_run_mean_and_worst(place: Path) -> None:
    found = json.loads(output(steelyard("grid", *QUICK, *AXES, "--seeds", "0,1", "--json")))
    assert len(found["runs"]) == 8
    assert {Run(each["path"]).spec["weighing"]["name"] for each in found["runs"]} == {"samples", "uniform"}
    cells, worst = found["metrics"]["accuracy"]["cells"], found["metrics"]["accuracy"]["worst"]
    mine = [
        each["metrics"]["accuracy"]
        for each in found["runs"]
        if (each["row"], each["column"]) == ("uniform", "iid")
    ]
    (cell,) = [each for each in cells if (each["row"], each["column"]) == ("uniform", "iid")]
    assert cell["mean"] == pytest.approx(sum(mine) / 2)
    for row in worst:
        assert row["value"] == min(each["mean"] for each in cells if each["row"] == row["row"])
    assert found["files"] == []


def test_a_grid_file_runs_and_is_not_mistaken_for_a_run(place: Path) -> None:
    (place / "mine.toml").write_text(FILE)
    found = json.loads(output(steelyard("grid", "mine.toml", "rounds=1", "--workers", 1, "--json")))
    assert [(each["row"], each["metrics"]["round"]) for each in found["runs"]] == [
        ("samples", 1),
        ("uniform", 1),
    ]
    for command in ("run", "spec"):
        result = steelyard(command, "mine.toml")
        assert result.exit_code == 2
        assert "use `steelyard grid mine.toml`." in result.stderr


def test_without_recording_no_folder_is_made(place: Path) -> None:
    output(steelyard("grid", *QUICK, *AXES, "--no-record"))
    assert not (place / "runs").exists()


def test_failed_cells_are_listed_and_the_others_shown() -> None:
    columns = ("--columns", "model=mlp,mine_for_cli:Stubborn")
    words = ("grid", *QUICK, *columns, "--rows", "weighing=samples", "--workers", 1)
    result = steelyard(*words, "--csv", "cells.csv")
    assert result.exit_code == 1
    assert "1 of 2 runs of the grid failed" in result.stderr
    assert "failed: 1" in result.stdout
    assert "samples × mine_for_cli:Stubborn, seed 0" in result.stdout
    assert "does not like to train" in result.stdout
    assert Path("cells.csv").is_file()
    as_json = steelyard(*words, "--json")
    assert as_json.exit_code == 1
    assert [bool(run["error"]) for run in json.loads(as_json.stdout)["runs"]] == [False, True]


def test_a_metric_that_no_run_has_gets_the_nearest_name_and_code_2() -> None:
    words = ("grid", *QUICK, "--rows", "weighing=samples,uniform", "--workers", 1)
    result = steelyard(*words, "--metric", "accuracyy")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: unknown metric 'accuracyy': did you mean 'accuracy'?\n"
    assert "choose from accuracy, " in steelyard(*words, "--metric", "zzzzzz").stderr


def test_a_grid_in_which_everything_fails_ends_with_code_1() -> None:
    result = steelyard("grid", *QUICK, "--rows", "model=mine_for_cli:Stubborn", "--workers", 1)
    assert result.exit_code == 1
    assert "every run of the grid failed" in result.stderr
    assert "does not like to train" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "a grid needs a setting that varies"),
        (("--rows", "weighing=sampels"), "cell sampels: unknown weighing rule 'sampels'"),
        (("--rows", "weighing"), "--rows takes a setting and its values"),
        (("rouds=3", "--rows", "weighing=samples"), "did you mean 'rounds'?"),
        (("--rows", "weighing=samples", "--seeds", "a"), "--seeds takes different whole numbers"),
        (("fedavg", "fedprox", "--rows", "weighing=samples"), "one preset or spec at a time"),
        (("gone.toml", "--rows", "weighing=samples"), "cannot read the spec gone.toml"),
        (("--rows", "rounds=1,2", "--png", "x.gif"), "ends with .png, .pdf or .svg, not 'x.gif'"),
        (("--rows", "rounds=1,2", "--png", "no/x.png"), "cannot write no/x.png: there is no folder no."),
        (("--rows", "rounds=1,2", "--csv", "no/x.csv"), "cannot write no/x.csv: there is no folder no."),
        (("--rows", "rounds=1,2", "--columns", "rounds=3,4"), "rounds is on the rows and the columns of"),
        (
            ("--rows", "weighing=samples,uniform", "--panels", "weighing.name=krum,nnm"),
            "weighing is on the panels and the rows of",
        ),
    ],
)
def test_bad_input_gets_one_sentence_and_code_2(
    arguments: tuple[str, ...], sentence: str, place: Path
) -> None:
    result = steelyard("grid", *arguments, "--json")
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert json.loads(result.stdout) == {"error": result.stderr.removeprefix("error: ").strip()}
    assert not (place / "runs").exists()


def test_help_teaches_with_examples() -> None:
    text = output(steelyard("grid", "--help"))
    assert "Examples:" in text
    assert "[grid.rows]" in text
    assert text.count("steelyard grid ") >= 3


def test_an_interrupted_grid_says_how_to_continue_and_leaves_no_process_behind(place: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test may be run in the background
    axes = ("--rows", "rounds=1,100000,100001", "--workers", "2")
    command = [sys.executable, "-m", "steelyard", "grid", "data.clients=3", *axes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            wait_for_long_runs(place / "runs")
            running.send_signal(signal.SIGINT)
            stdout, stderr = running.communicate(timeout=300)
        finally:
            running.kill()
            signal.signal(signal.SIGINT, before)
    assert (running.returncode, stdout) == (130, "")
    assert "the same command continues" in stderr
    assert "Traceback" not in stderr
    statuses = sorted(each.meta["status"] for each in runs_in(place / "runs"))
    assert statuses == ["finished", "interrupted", "interrupted"]


def wait_for_long_runs(out: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if sum(len(run.rounds) > 1 for run in runs_in(out)) == 2:
            return
    pytest.fail("the long runs did not start in 300 s")


def test_a_grid_names_its_settings_and_prints_latex() -> None:
    words = ("grid", *QUICK, "--rows", "weighing=samples,uniform", "--columns", "training.lr=0.1,0.2")
    text = output(steelyard(*words, "--seeds", "0,1", "--workers", 1))
    assert "columns: training.lr" in text
    assert any(line.startswith("weighing ") for line in text.splitlines())
    assert "±" in text
    latex = output(steelyard(*words, "--seeds", "0,1", "--latex"))
    assert r"\multicolumn{2}{c}{training.lr}" in latex
    assert latex.count(r"$\pm$") == 5  # one is in the title
    assert "weighing & 0.1 & 0.2" in latex


@pytest.mark.parametrize("again", [False, True])
def test_runs_in_which_nothing_happened_are_named_and_end_with_code_1(again: bool) -> None:
    words = ("grid", *QUICK, "--columns", "training.lr=0.1,1e30", "--workers", 1)
    for _ in range(1 + again):  # also if the runs were recorded before
        result = steelyard(*words)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("warning: 1e30, seed 0: no round changed the model")
    assert "0.1, seed" not in result.stderr


@pytest.mark.parametrize("option", ["--figure", "--png"])
def test_the_end_of_the_name_says_what_is_drawn(place: Path, option: str) -> None:
    words = ("grid", *QUICK, "--rows", "weighing=samples,uniform", "--workers", 1)
    for name, start in (("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
        assert f"written: {name}" in output(steelyard(*words, option, name))
        assert (place / name).read_bytes().startswith(start)
