"""Reading a run changes nothing: beside a live one, after a crash, on read-only media."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from crashes import SPEC, crash

import steelyard as sy
from steelyard.runs.folder import DATABASE
from steelyard.runs.reader import Run, runs_in
from steelyard.runs.summary import summarise
from steelyard.runs.writer import Recorder
from steelyard.types import Round

ROUNDS = [
    Round(number, {"loss": 0.5}, ({"client": "a", "status": "used", "weight": 1.0},)) for number in (1, 2)
]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_finished_run_is_one_plain_file_that_reading_leaves_alone(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        for round in ROUNDS:
            recorder(round)
    before = names(tmp_path / "run")
    assert not any(name.endswith(("-wal", "-shm")) for name in before)
    assert len(Run(tmp_path / "run").rounds) == 2
    assert names(tmp_path / "run") == before


def test_a_record_that_lies_in_wal_mode_without_its_log_is_read_without_new_files(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder(ROUNDS[0])
    database = sqlite3.connect(tmp_path / "run" / DATABASE)
    database.execute("PRAGMA journal_mode = WAL")
    database.close()
    before = names(tmp_path / "run")
    assert len(Run(tmp_path / "run").rounds) == 1
    assert names(tmp_path / "run") == before


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which a test can make read-only."""
    place = tmp_path / "media"
    place.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no command to mount a file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_runs_on_read_only_media_are_shown(
    read_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, whole = crash(SPEC, tmp_path, monkeypatch)
    wanted = [summarise(Run(path)) | {"path": ""} for path in (crashed, whole)]
    assert len(Run(crashed).rounds) == 4
    shutil.copytree(crashed, read_only / "crashed")
    (read_only / "crashed" / f"{DATABASE}-shm").unlink()
    shutil.copytree(whole, read_only / "whole")
    subprocess.run(["mount", "-o", "remount,ro", read_only], check=True)
    with pytest.raises(OSError, match="Read-only"):
        (read_only / "x").touch()
    assert [summarise(run) | {"path": ""} for run in runs_in(read_only)] == wanted
    assert sy.load_model(read_only / "whole")
    with pytest.raises(sy.InputError, match=r"cannot write to .*Read-only"):
        sy.resume(read_only / "crashed")


def test_a_log_that_cannot_be_read_in_its_place_is_read_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without a mounted file system: SQLite says that it cannot open the file for reading only."""
    crashed, _ = crash(SPEC, tmp_path, monkeypatch)
    connect = sqlite3.connect

    def refuse(path: str, **options: object) -> sqlite3.Connection:
        if path.endswith("mode=ro"):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return connect(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlite3, "connect", refuse)
    before = names(crashed)
    assert len(Run(crashed).rounds) == 4
    assert names(crashed) == before


def test_a_client_model_is_read_beside_a_live_run_without_a_change(tmp_path: Path) -> None:
    spec = {**SPEC, "sharing": {"name": "head", "adopt": False}, "objective": "distillation", "spill": True}
    seen: list[bool] = []

    def read(round: Round) -> None:
        if round.number == 3:
            (run,) = runs_in(tmp_path)
            files = {path: os.stat(path).st_mtime_ns for path in (run.path / "private").iterdir()}
            assert sy.load_model(run, "client-0")
            assert {path: os.stat(path).st_mtime_ns for path in (run.path / "private").iterdir()} == files
            seen.append(True)

    sy.run(spec, read, out=tmp_path)
    assert seen
