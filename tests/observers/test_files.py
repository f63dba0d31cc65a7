"""CSV and JSON lines: what is in the files, late columns, hostile names, resuming."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tracked_runs import HOSTILE, interrupted_run, one_round, small_run

import steelyard as sy
from steelyard.errors import InputError, ObserverWarning
from steelyard.observers import CSV, JSONLines
from steelyard.observers.csv_files import Table
from steelyard.observers.facts import RunFacts
from steelyard.types import Round

FILES = ("rounds.csv", "clients.csv", "rounds.jsonl")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_files_are_in_the_folder_of_the_run_and_hold_what_the_record_holds(tmp_path: Path) -> None:
    result = small_run(tmp_path, CSV(), JSONLines())
    assert result.path is not None
    rounds, clients = table(result.path / "rounds.csv"), table(result.path / "clients.csv")
    assert [row["round"] for row in rounds] == ["1", "2"]
    assert [float(row["accuracy"]) for row in rounds] == [row["accuracy"] for row in result.history]
    assert float(rounds[0]["seconds.exchange"]) > 0
    assert [(row["client"], float(row["weight"])) for row in clients] == [
        (row["client"], row["weight"]) for row in result.clients
    ]
    found = lines(result.path / "rounds.jsonl")
    assert [line["round"] for line in found] == [1, 2]
    assert found[1]["metrics"]["accuracy"] == result.history[1]["accuracy"]
    assert found[1]["clients"][2]["weight"] == result.clients[-1]["weight"]
    assert found[1]["seconds"]["exchange"] > 0


def test_each_round_is_there_as_soon_as_it_is_complete(tmp_path: Path) -> None:
    tracker = JSONLines(tmp_path / "deep" / "own.jsonl")
    tracker.begin(RunFacts("x", 2))
    for number in (1, 2):
        tracker(one_round(number))
        assert [line["round"] for line in lines(tmp_path / "deep" / "own.jsonl")] == [*range(1, number + 1)]


def test_numbers_that_json_lacks_are_null_and_hostile_names_stay_as_they_are(tmp_path: Path) -> None:
    tracker = JSONLines(tmp_path / "x.jsonl")
    tracker.begin(RunFacts("x", 1))
    tracker(one_round(norm=float("inf")))
    text = (tmp_path / "x.jsonl").read_text("utf-8")
    assert "\x1b" not in text
    (found,) = lines(tmp_path / "x.jsonl")
    assert found["metrics"] == {"used": 8.0, "loss": None, "cos(x)": 0.25}
    assert [row["client"] for row in found["clients"]] == list(HOSTILE)
    assert all(row["norm"] is None for row in found["clients"])


def test_a_spreadsheet_sees_no_formula(tmp_path: Path) -> None:
    tracker = CSV(tmp_path / "own")
    tracker.begin(RunFacts("x", 1))
    tracker(one_round(status="@SUM(A1)\nsecond line", norm=-0.5))
    found = table(tmp_path / "own" / "clients.csv")
    assert [row["client"] for row in found] == ["'=HYPERLINK(1)", *HOSTILE[1:-1], "red"]
    assert {row["status"] for row in found} == {"'@SUM(A1)\nsecond line"}
    assert {row["norm"] for row in found} == {"-0.5"}


def test_a_column_that_appears_late_is_empty_in_the_rows_before(tmp_path: Path) -> None:
    tracker = CSV(tmp_path)
    tracker.begin(RunFacts("x", 3))
    tracker(Round(1, {"loss": 2.0}, ({"client": "a,b", "status": "used"},)))
    tracker(Round(2, {"loss": 1.0, "=accuracy": 0.5}, ({"client": "c", "reason": 'a "quote"'},)))
    tracker(Round(3, {"=accuracy": 0.75}, ()))
    assert table(tmp_path / "rounds.csv") == [
        {"round": "1", "loss": "2.0", "'=accuracy": ""},
        {"round": "2", "loss": "1.0", "'=accuracy": "0.5"},
        {"round": "3", "loss": "", "'=accuracy": "0.75"},
    ]
    assert table(tmp_path / "clients.csv") == [
        {"round": "1", "client": "a,b", "status": "used", "reason": ""},
        {"round": "2", "client": "c", "status": "", "reason": 'a "quote"'},
    ]


@pytest.mark.parametrize("where", ["in the folder", "elsewhere"])
def test_a_resumed_run_ends_with_the_files_of_an_unbroken_one(tmp_path: Path, where: str) -> None:
    own = tmp_path / "own"
    paths = (None, None) if where == "in the folder" else (str(own), str(own / "rounds.jsonl"))
    names = [{"name": name, "path": path} for name, path in zip(("csv", "jsonlines"), paths, strict=True)]
    path = interrupted_run(tmp_path / "runs", after=2, observers=names)
    folder = path if where == "in the folder" else own
    assert [row["round"] for row in table(folder / "rounds.csv")] == ["1"]  # interrupted before the second
    sy.resume(path)
    whole = small_run(tmp_path / "whole", rounds=4, observers=["csv", "jsonlines"])
    assert whole.path is not None
    assert _without_times(folder) == _without_times(whole.path)
    assert not list(folder.glob("*.partial"))


def _without_times(folder: Path) -> list[Any]:
    rounds = [
        {key: value for key, value in row.items() if not key.startswith("seconds.")}
        for row in table(folder / "rounds.csv")
    ]
    jsons = [{**line, "seconds": None} for line in lines(folder / "rounds.jsonl")]
    return [rounds, table(folder / "clients.csv"), jsons]


def test_rounds_after_the_resumed_one_and_a_torn_last_line_are_removed(tmp_path: Path) -> None:
    trackers = (CSV(tmp_path), JSONLines(tmp_path / "rounds.jsonl"))
    for tracker in trackers:
        tracker.begin(RunFacts("x", 20))
        for number in (1, 2, 12):
            tracker(one_round(number))
    for name in FILES:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content + (b"1" if name.endswith("csv") else b'{"round": 1'))
    for tracker in trackers:
        tracker.begin(RunFacts("x", 20, after=1))
        tracker(one_round(2))
    assert [row["round"] for row in table(tmp_path / "rounds.csv")] == ["1", "2"]
    assert [row["round"] for row in table(tmp_path / "clients.csv")] == ["1"] * 8 + ["2"] * 8
    assert [line["round"] for line in lines(tmp_path / "rounds.jsonl")] == [1, 2]


def test_a_new_run_does_not_touch_files_that_exist(tmp_path: Path) -> None:
    for name, tracker in (
        ("clients.csv", CSV(tmp_path)),
        ("rounds.jsonl", JSONLines(tmp_path / "rounds.jsonl")),
    ):
        (tmp_path / name).write_text("mine")
        with pytest.raises(InputError, match="which exists: choose another path"):
            small_run(None, tracker)
        assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("content", ["mine\n", "[1]\n", "a,b\n1,2\n"])
def test_a_file_of_somebody_else_is_left_alone_when_a_run_is_resumed(tmp_path: Path, content: str) -> None:
    path = interrupted_run(tmp_path, observers=["csv", "jsonlines"])
    for name in FILES:
        (path / name).write_text(content)
    with pytest.warns(ObserverWarning, match="not written by this observer") as caught:
        assert len(sy.resume(path).history) == 4
    assert len(caught) == 2
    assert {(path / name).read_text() for name in FILES} == {content}


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Table, rows: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Table, "add", full)
    with pytest.warns(ObserverWarning, match="observer CSV failed.*No space left"):
        assert len(small_run(tmp_path, CSV()).history) == 2
