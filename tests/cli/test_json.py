"""With --json a command prints one object and nothing else."""

import json
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard

from steelyard.runs.reader import Run
from steelyard.runs.writer import Recorder
from steelyard.types import Round


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", *QUICK),
        ("compare", "fedavg", "--seeds", "0", *QUICK),
        ("show", "RUN"),
        ("calibration", "RUN"),
        ("list", "weighing"),
        ("list", "presets"),
        ("data", "list"),
        ("data", "where"),
        ("data", "get", "digits"),
        ("data", "show", "data.clients=3"),
    ],
    ids=" ".join,
)
def test_with_json_the_output_is_one_object_and_nothing_else(
    arguments: tuple[str, ...], finished: Path
) -> None:
    words = [str(finished) if word == "RUN" else word for word in arguments]
    found = json.loads(output(steelyard(*words, "--json")))
    assert isinstance(found, dict)
    assert found
    assert "error" not in found or found["error"] is None


def test_json_of_a_run_has_everything_that_is_shown(finished: Path) -> None:
    found = json.loads(output(steelyard("show", finished, "--json")))
    assert (found["path"], found["status"], found["rounds"]) == (str(finished), "finished", 2)
    assert found["metrics"]["accuracy"] == Run(finished).rounds[-1]["accuracy"]
    assert [each["client"] for each in found["clients"]] == ["client-0", "client-1", "client-2"]
    assert sum(each["weight"] for each in found["clients"]) == pytest.approx(1)


def test_json_of_a_comparison_has_means_deviations_and_runs() -> None:
    found = json.loads(output(steelyard("compare", "fedavg", "--seeds", "0,1", *QUICK, "--json")))
    assert found["seeds"] == [0, 1]
    assert set(found["rows"][0]["metrics"]["accuracy"]) == {"mean", "sd"}
    assert len(found["rows"][0]["runs"]) == 2


def test_json_has_null_where_a_number_is_not_finite(place: Path) -> None:
    with Recorder(place / "run") as recorder:
        recorder(Round(1, {"loss": float("inf"), "accuracy": 0.5}, ()))
    found = json.loads(output(steelyard("show", "run", "--json")), parse_constant=pytest.fail)
    assert found["metrics"] == {"loss": None, "accuracy": 0.5}
