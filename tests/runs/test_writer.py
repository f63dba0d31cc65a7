import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime, tzinfo
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_model
from torch import nn

import steelyard
from steelyard.errors import InputError, SteelyardError
from steelyard.runs.environment import environment
from steelyard.runs.reader import Run, runs_in
from steelyard.runs.writer import Recorder, new_recorder
from steelyard.server.aggregation import ServerState
from steelyard.server.state import FederationState
from steelyard.types import Message, Round

STATE = FederationState(0, ServerState(Message(torch.zeros(1))))
FIRST = Round(1, {"loss": 0.5}, ({"client": "b", "status": "used", "weight": 1.0},), {"train": 0.1})
SECOND = Round(
    2,
    {"loss": 0.25, "accuracy": 0.75},
    (
        {"client": "b", "status": "used", "weight": 0.75, "cosine": -0.1, "num_examples": 7},
        {"client": "a", "status": "sent no reply", "weight": 0.0},
    ),
    {"train": 0.2, "evaluate": 0.3},
)


class Tied(nn.Module):
    """Two layers with one weight, and BatchNorm with its counter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)


def test_rounds_clients_and_timings_read_back_with_columns_that_came_later(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder(FIRST)
        recorder(SECOND)
    run = Run(tmp_path / "run")
    assert run.rounds == [
        {"round": 1, "loss": 0.5, "accuracy": None},
        {"round": 2, "loss": 0.25, "accuracy": 0.75},
    ]
    nothing = {"cosine": None, "num_examples": None}
    assert run.clients == [
        {"round": 1, "client": "b", "status": "used", "weight": 1.0, **nothing},
        {"round": 2, "client": "a", "status": "sent no reply", "weight": 0.0, **nothing},
        {"round": 2, "client": "b", "status": "used", "weight": 0.75, "cosine": -0.1, "num_examples": 7},
    ]
    assert run.timings == [
        {"round": 1, "train": 0.1, "evaluate": None},
        {"round": 2, "train": 0.2, "evaluate": 0.3},
    ]


def test_rounds_are_read_in_their_order_also_beyond_nine(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        for number in (10, 9, 1):
            recorder(Round(number, {}, ()))
    assert [row["round"] for row in Run(tmp_path / "run").rounds] == [1, 9, 10]


@pytest.mark.parametrize("name", ["two words", 'a "quoted" name', "x; DROP TABLE rounds", "select"])
def test_a_rule_may_call_its_evidence_what_it_likes(tmp_path: Path, name: str) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder(Round(1, {name: 0.5}, ()))
    assert Run(tmp_path / "run").rounds == [{"round": 1, name: 0.5}]


def test_the_database_is_in_wal_mode(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run"), closing(sqlite3.connect(tmp_path / "run/record.sqlite")) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_every_round_can_be_read_by_others_as_soon_as_it_is_written(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        run = Run(tmp_path / "run")
        assert run.rounds == []
        for number, round in enumerate((FIRST, SECOND), start=1):
            recorder(round)
            assert len(run.rounds) == len(run.timings) == number
        assert len(run.clients) == 3


def test_a_round_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    twice = ({"client": "a"}, {"client": "a"})
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(sqlite3.IntegrityError):
            recorder(Round(1, {"loss": 0.5}, twice))
        assert (Run(tmp_path / "run").rounds, Run(tmp_path / "run").clients) == ([], [])


def test_a_round_saved_before_its_scores_are_known_is_replaced_when_they_come(tmp_path: Path) -> None:
    unscored = Round(2, {"loss": 0.25}, SECOND.clients[:1])
    with Recorder(tmp_path / "run") as recorder:
        recorder(FIRST)
        recorder.save(FederationState(2, STATE.server, unscored))
        run = Run(tmp_path / "run")
        assert [row["round"] for row in run.rounds] == [1, 2], "it can be read at once"
        recorder(SECOND)
        assert run.rounds[1] == {"round": 2, "loss": 0.25, "accuracy": 0.75}
        assert len(run.clients) == 3


def test_a_run_that_ends_well_is_finished(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", meta={"name": "mine"}):
        assert Run(tmp_path / "run").meta["status"] == "running"
    meta = Run(tmp_path / "run").meta
    assert (meta["status"], meta["name"]) == ("finished", "mine")
    assert meta["started"] <= meta["ended"]
    assert "error" not in meta


def end_with(error: BaseException, path: Path) -> None:
    """A run that is torn off after its first round."""
    with Recorder(path) as recorder:
        recorder(FIRST)
        raise error


def test_a_run_that_breaks_has_failed_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        end_with(ZeroDivisionError("by nought"), tmp_path / "run")
    run = Run(tmp_path / "run")
    assert (run.meta["status"], run.meta["error"]) == ("failed", "by nought")
    assert len(run.rounds) == 1


def test_a_run_that_is_stopped_is_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        end_with(KeyboardInterrupt(), tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.meta["status"] == "interrupted"
    assert "error" not in run.meta
    assert len(run.rounds) == 1


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=f"{re.escape(str(tmp_path))} exists and is not empty"):
        Recorder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(InputError, match="choose another folder"):
        Recorder(tmp_path / "run")


def test_an_empty_folder_is_welcome_and_parents_are_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "deep/down"):
        with Recorder(path):
            pass
        assert Run(path).meta["status"] == "finished"


KILLED = """
import os, signal, sys
from steelyard.runs.writer import Recorder
from steelyard.types import Round

recorder = Recorder(sys.argv[1])
for number in (1, 2, 3):
    recorder(Round(number, {"loss": 1 / number}, ({"client": "a", "weight": 1.0},)))
recorder.record.database.execute("INSERT INTO rounds (round) VALUES (4)")  # round 4 has begun
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_its_finished_rounds_readable(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run")], timeout=60)
    assert done.returncode == -signal.SIGKILL
    run = Run(tmp_path / "run")
    assert run.rounds == [{"round": number, "loss": 1 / number} for number in (1, 2, 3)]
    assert len(run.clients) == 3
    assert run.meta["status"] == "running"


def test_a_model_with_tied_weights_and_integer_buffers_reads_back(tmp_path: Path) -> None:
    model, again = Tied(), Tied()
    model.norm(torch.randn(4, 3))
    with Recorder(tmp_path / "run") as recorder:
        recorder.finish(STATE, model)
    load_model(again, tmp_path / "run/model.safetensors")
    assert again.second.weight is again.first.weight
    assert again.norm.num_batches_tracked == 1
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_a_model_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(model: nn.Module, path: str, metadata: dict[str, str]) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("the disk is full")

    with Recorder(tmp_path / "run") as recorder:
        recorder.finish(STATE, Tied())
        good = (tmp_path / "run/model.safetensors").read_bytes()
        monkeypatch.setattr("steelyard.runs.writer.save_model", half)
        with pytest.raises(SteelyardError, match=r"cannot write .*model\.safetensors: the disk is full"):
            recorder.finish(STATE, Tied())
    assert (tmp_path / "run/model.safetensors").read_bytes() == good


def test_the_folder_holds_open_formats_only(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", "seed = 3\n") as recorder:
        recorder(FIRST)
        recorder.finish(STATE, Tied())
        during = {path.name for path in (tmp_path / "run").iterdir()}
    files = {"spec.toml", "environment.json", "record.sqlite", "lock"}
    files |= {"model.safetensors", "state-0.safetensors"}
    assert files <= during <= files | {"record.sqlite-wal", "record.sqlite-shm"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == files
    assert (tmp_path / "run/record.sqlite").read_bytes().startswith(b"SQLite format 3")


def test_the_spec_reads_back(tmp_path: Path) -> None:
    with Recorder(tmp_path / "with", "seed = 3\n"), Recorder(tmp_path / "without"):
        pass
    assert Run(tmp_path / "with").spec == {"seed": 3}
    assert Run(tmp_path / "without").spec == {}


def test_new_folders_of_the_same_second_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Stopped":
            return cls(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr("steelyard.runs.folder.datetime", Stopped)
    folders = []
    for _ in range(3):
        with new_recorder(tmp_path / "runs", "mine-s0", str, {}) as recorder:
            folders.append(recorder.path)
    assert folders[0].name == "20260102-030405-mine-s0"
    assert len(set(folders)) == 3
    assert all(folder.is_dir() for folder in folders)
    assert sorted(folders) == folders


def test_the_environment_has_the_versions_that_numbers_depend_on(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run"):
        pass
    found = json.loads((tmp_path / "run/environment.json").read_text())
    assert found == environment()
    assert found["steelyard"] == steelyard.__version__
    assert found["packages"]["torch"] == torch.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_folder_that_is_no_run_is_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(InputError, match=f"{re.escape(str(path))} is not a recorded run"):
            Run(path)


@pytest.mark.parametrize("content", [b"", b"this is no database, whatever its name says" * 100])
def test_a_broken_record_is_bad_input(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "record.sqlite").write_bytes(content)
    with pytest.raises(InputError, match="cannot read the record"):
        _ = Run(tmp_path).meta
    assert not Run(tmp_path).is_readable()


def test_runs_in_a_folder_are_the_readable_ones_in_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        with Recorder(tmp_path / name):
            pass
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/record.sqlite").write_bytes(b"nonsense" * 200)
    (tmp_path / "other").mkdir()
    assert [run.path.name for run in runs_in(tmp_path)] == ["a", "b"]
    assert runs_in(tmp_path / "gone") == []


def test_columns_come_in_the_order_they_are_given(tmp_path: Path) -> None:
    metrics = {f"metric{number}": float(number) for number in range(20)}
    with Recorder(tmp_path / "run") as recorder:
        recorder(Round(1, metrics, ()))
    assert list(Run(tmp_path / "run").rounds[0]) == ["round", *metrics]
