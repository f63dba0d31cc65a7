"""What goes wrong with the disk is said in one sentence, and the run can be resumed."""

import errno
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crashes import HEADS, SPEC, assert_same

import steelyard as sy
from steelyard.errors import InputError, SteelyardError
from steelyard.runs import record, writer
from steelyard.runs.folder import DATABASE
from steelyard.runs.reader import Run, runs_in
from steelyard.runs.writer import Recorder
from steelyard.types import Round

ROUND = Round(1, {"loss": 0.5}, ({"client": "a", "weight": 1.0},))


def lock_for(seconds: float, path: Path, locked: threading.Event) -> None:
    """What another program does that writes to the record."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        locked.set()
        time.sleep(seconds)
        other.rollback()


@pytest.mark.parametrize(("seconds", "patience", "recorded"), [(2.5, 60.0, True), (4.0, 1.0, False)])
def test_a_record_that_another_program_has_locked_is_waited_for(
    seconds: float, patience: float, recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "BUSY_SECONDS", patience)
    recorder, locked = Recorder(tmp_path / "run"), threading.Event()
    other = threading.Thread(target=lock_for, args=(seconds, tmp_path / "run" / DATABASE, locked))
    other.start()
    assert locked.wait(10)
    if recorded:
        recorder(ROUND)
    else:
        with pytest.raises(SteelyardError, match=r"cannot write the record .*: database is locked"):
            recorder(ROUND)
    other.join()
    with recorder:
        pass
    assert len(Run(tmp_path / "run").rounds) == recorded


def test_the_wait_is_minutes() -> None:
    assert record.BUSY_SECONDS >= 120


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("spec", [SPEC, {**HEADS, "spill": True}, HEADS], ids=["plain", "files", "memory"])
def test_a_disk_that_fails_ends_the_run_in_one_sentence_and_it_can_be_resumed(
    spec: dict[str, Any], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "STATE_SECONDS", 0.0)
    wanted = sy.run(spec, out=tmp_path / "whole")
    fsync, rounds = os.fsync, 0

    def fail_later(descriptor: int) -> None:
        if rounds >= 3:
            raise OSError(number, "it fails")
        fsync(descriptor)

    def count(round: Round) -> None:
        nonlocal rounds
        rounds = round.number

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_later)
        with pytest.raises(
            SteelyardError, match=r"cannot write .*: it fails; mend that, then resume"
        ) as caught:
            sy.run(spec, count, out=tmp_path / "broken")
    assert not isinstance(caught.value, InputError)
    (broken,) = runs_in(tmp_path / "broken")
    assert broken.meta["status"] == "failed"
    assert "it fails" in broken.meta["error"]
    sy.resume(broken.path)
    assert wanted.path is not None
    assert_same(broken.path, wanted.path)


def test_a_full_disk_under_the_record_is_one_sentence(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    pages = recorder.record.database.execute("PRAGMA page_count").fetchone()[0]
    recorder.record.database.execute(f"PRAGMA max_page_count = {pages}")

    def record_rounds() -> None:
        with recorder:
            for number in range(1, 200):
                recorder(Round(number, {"loss": 0.5}, ({"client": "a", "reason": "long" * 1000},)))

    with pytest.raises(SteelyardError, match=r"cannot write the record .*: database or disk is full"):
        record_rounds()
    run = Run(tmp_path / "run")
    assert run.meta["status"] in ("failed", "running")
    with Recorder(tmp_path / "run", after=0) as again:
        again(ROUND)
    assert Run(tmp_path / "run").meta["status"] == "finished"


def test_columns_of_a_round_that_failed_can_be_added_again(tmp_path: Path) -> None:
    twice = ({"client": "a", "new": 1.0}, {"client": "a", "new": 2.0})
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(sqlite3.IntegrityError):
            recorder(Round(1, {"other": 1.0}, twice))
        recorder(Round(1, {"other": 1.0}, twice[:1]))
    assert Run(tmp_path / "run").clients == [{"round": 1, "client": "a", "new": 1.0}]


def test_the_record_is_on_disk_before_a_state_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    original = record.Record.transaction

    def watched(self: record.Record, durable: bool = False) -> Any:
        if durable:
            steps.append("record")
        return original(self, durable)

    monkeypatch.setattr(record.Record, "transaction", watched)
    monkeypatch.setattr(writer, "save_state", lambda state, path: steps.append("state"))
    sy.run({**SPEC, "rounds": 1}, out=tmp_path)
    assert steps[:2] == ["record", "state"]
    assert steps.count("record") == steps.count("state") >= 2
