"""steelyard calibration"""

import json
import shutil
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard

from steelyard.runs.reader import Run

NAME = "fedavg+data.holdout=0.2"  # without what both runs have


def run(*words: str) -> Path:
    return Path(json.loads(output(steelyard("run", *words, *QUICK, "--json")))["path"])


@pytest.fixture
def runs(place: Path) -> list[Path]:
    """A point model with a temperature, and posteriors without."""
    return [run("fedavg", "data.holdout=0.2"), run("ba-bfl")]


def test_scores_are_those_of_the_record_also_at_the_temperature(runs: list[Path]) -> None:
    found = json.loads(output(steelyard("calibration", *runs, "--json")))
    plain, heated, bayesian = found["models"]
    point, posterior = (Run(path).rounds[-1] for path in runs)
    assert [each["run"] for each in found["models"]] == [str(runs[0]), str(runs[0]), str(runs[1])]
    assert (plain["temperature"], heated["temperature"]) == (None, point["temperature"])
    for name in ("nll", "ece", "brier"):
        assert plain[name] == point[name]
        assert heated[name] == point[f"{name}_scaled"]
        assert bayesian[name] == posterior[name]
    assert sum(plain["bins"]["size"]) == 355
    assert found["png"] is None


def test_names_are_short_and_the_picture_is_drawn(runs: list[Path], place: Path) -> None:
    (place / "pictures").mkdir()
    text = output(steelyard("calibration", *runs, "--png", "pictures/sure.png"))
    lines = text.splitlines()
    assert [line.split()[0] for line in lines if "-s0" in line] == [*[f"{NAME}-s0"] * 2, "ba-bfl-s0"]
    assert f"{NAME}-s0 at T = " in text
    assert "written: pictures/sure.png" in text
    assert (place / "pictures" / "sure.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("name", ["sure.jpg", "sure", "no/sure.png"])
def test_a_file_that_cannot_be_written_is_refused_at_once(runs: list[Path], place: Path, name: str) -> None:
    result = steelyard("calibration", *runs, "--png", name)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert name in result.stderr
    assert not (place / "no").exists()


def test_runs_of_the_same_name_are_shown_by_their_folders(runs: list[Path], place: Path) -> None:
    renamed = run("ba-bfl", "training.lr=0.01").rename(place / runs[1].name[len("20261115-220936-") :])
    text = output(steelyard("calibration", runs[1], renamed))
    assert str(runs[1]) in text
    assert str(renamed) in text


def test_numbers_are_whole_beside_long_names_on_a_narrow_terminal(
    finished: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "fedavg+rounds=1+data.partition=shards+data.partition.shards=20+2-more-s0"
    shutil.copytree(finished, place / name)
    (values,) = json.loads(output(steelyard("calibration", name, "--json")))["models"]
    monkeypatch.setenv("COLUMNS", "80")
    lines = output(steelyard("calibration", name)).splitlines()
    scores = [f"{values[score]:.4f}" for score in ("accuracy", "ece", "nll", "brier")]
    assert lines[2].split() == ["fedavg+rounds=1+data.partition=shards+", *scores]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("name", "start"), [("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_the_file_is_what_its_name_says(finished: Path, place: Path, name: str, start: bytes) -> None:
    assert f"written: {name}" in output(steelyard("calibration", finished, "--figure", name))
    assert (place / name).read_bytes().startswith(start)


def test_a_run_named_twice_is_refused(runs: list[Path]) -> None:
    result = steelyard("calibration", runs[0], runs[0])
    assert (result.exit_code, result.stderr) == (2, "error: name each run once.\n")
