"""A run folder has one writer, and it is there whole or not at all."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import steelyard as sy
from steelyard.errors import InputError, SteelyardError
from steelyard.runs import folder as folders
from steelyard.runs.folder import HIDDEN, Lock
from steelyard.runs.reader import Run, runs_in
from steelyard.runs.writer import Recorder, new_recorder
from steelyard.types import Round

FIRST, SECOND = (Round(number, {"loss": 0.5}, ({"client": "a", "weight": 1.0},)) for number in (1, 2))
BUSY = rf"is being written by process {os.getpid()} on .*; wait until it ends, or end it"


def contents(folder: Path) -> dict[str, bytes]:
    """What files hold, without the memory that readers and the writer of a record share."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# One writer


def test_a_second_recorder_of_the_same_process_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", "seed = 3\n") as recorder:
        recorder(FIRST)
        before = contents(tmp_path / "run")
        with pytest.raises(InputError, match=BUSY):
            Recorder(tmp_path / "run", after=0)
        with pytest.raises(InputError, match=BUSY):
            sy.resume(tmp_path / "run")
        assert contents(tmp_path / "run") == before
        recorder(SECOND)
    assert len(Run(tmp_path / "run").rounds) == 2
    with Recorder(tmp_path / "run", after=1) as again:
        assert len(Run(again.path).rounds) == 1, "the lock is free again"


def test_threads_are_refused_like_processes(tmp_path: Path) -> None:
    refused: list[str] = []

    def second() -> None:
        try:
            Recorder(tmp_path / "run", after=0)
        except InputError as error:
            refused.append(str(error))

    with Recorder(tmp_path / "run"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_a_process_that_is_stopped_keeps_its_run_and_one_that_is_killed_frees_it(tmp_path: Path) -> None:
    code = "import sys, time; from steelyard.runs.writer import Recorder\n"
    code += "mine = Recorder(sys.argv[1]); print('ready', flush=True); time.sleep(600)"
    path = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            os.kill(other.pid, signal.SIGSTOP)
            with pytest.raises(InputError, match=f"is being written by process {other.pid} on "):
                Recorder(path, after=0)
        finally:
            other.kill()
            other.wait()
        with Recorder(path, after=0):
            pass


def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Workers of a pool may outlive a parent that was killed."""
    begin, end = multiprocessing.get_context("fork").Event(), multiprocessing.get_context("fork").Event()

    def work() -> None:
        begin.set()
        end.wait(60)

    recorder = Recorder(tmp_path / "run")
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    try:
        assert begin.wait(60)
        with recorder:
            pass
        with Recorder(tmp_path / "run", after=0):
            pass
    finally:
        end.set()
        worker.join()


# A writer that lost its folder


def replaced(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("copy"))
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)


@pytest.mark.parametrize("happens", [replaced, shutil.rmtree])
def test_a_writer_whose_folder_is_gone_stops(happens: Callable[[Path], None], tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    recorder(FIRST)
    happens(tmp_path / "run")
    left = contents(tmp_path)
    for write in (lambda: recorder(SECOND), lambda: recorder.note(a="b"), recorder.check):
        with pytest.raises(SteelyardError, match="was moved, deleted or replaced"):
            write()
    with pytest.raises(SteelyardError, match="was moved"), recorder:
        pass
    assert contents(tmp_path) == left


def test_a_writer_that_lost_the_lock_stops_when_another_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a network, where the server of the files may forget a lock."""
    first = Recorder(tmp_path / "run")
    first(FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(folders.fcntl, "flock", lambda *_: None)
        second = Recorder(tmp_path / "run", after=0)
    second(FIRST)
    with pytest.raises(SteelyardError, match="was resumed by another process"):
        first(SECOND)
    with pytest.raises(SteelyardError, match="was resumed by another process"):
        first.check()
    with pytest.raises(KeyError), first:
        raise KeyError  # and it does not say of the other's run that it failed
    with second:
        second(SECOND)
    run = Run(tmp_path / "run")
    assert (len(run.rounds), run.meta["status"]) == (2, "finished")


# Whole or not at all

KILLED = """
import os, signal, sys
from pathlib import Path
import steelyard.runs.{module} as module
from steelyard.runs.writer import Recorder

original = getattr(module, {name!r})
def die(*arguments, **options):
    original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(module, {name!r}, die)
Recorder(sys.argv[1], "seed = 3")
"""


@pytest.mark.parametrize(("module", "name"), [("writer", "make_record"), ("folder", "sync")])
def test_a_process_that_dies_while_it_makes_the_folder_leaves_none(
    module: str, name: str, tmp_path: Path
) -> None:
    code = KILLED.format(module=module, name=name)
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], timeout=60)
    assert done.returncode == -signal.SIGKILL
    (hidden,) = tmp_path.iterdir()
    assert hidden.name.startswith(HIDDEN)
    assert runs_in(tmp_path) == []
    with Recorder(tmp_path / "run"):
        assert [path.name for path in tmp_path.iterdir()] == ["run"], "the next run cleans up"


def test_a_folder_that_is_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{HIDDEN}other").mkdir()
    lock = Lock(tmp_path / f"{HIDDEN}other")
    with Recorder(tmp_path / "run"):
        assert lock.folder.is_dir()
    lock.release()


def test_a_run_that_cannot_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("steelyard.runs.writer.make_record", full)
    with pytest.raises(InputError, match=r"cannot record a run in .*: No space left on device"):
        Recorder(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_two_runs_that_want_the_same_name_get_two_folders(tmp_path: Path) -> None:
    names: list[str] = []

    def begin() -> None:
        with new_recorder(tmp_path, "mine", str, {}) as recorder:
            names.append(recorder.path.name)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_resumed_folder_has_no_stray_files(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder(FIRST)
    clean = set(contents(tmp_path / "run"))
    for name in (
        "state-1.safetensors.partial",
        ".tmpAbC12",
        "model.safetensors.partial",
        "state-7.safetensors",
    ):
        (tmp_path / "run" / name).write_bytes(b"half")
    with Recorder(tmp_path / "run", after=1):
        pass
    assert set(contents(tmp_path / "run")) == clean


@pytest.mark.parametrize("name", ["model.safetensors.partial", "state-1.safetensors", "private"])
def test_symbolic_links_lead_nowhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Recorder(tmp_path / "run", "seed = 3\n"):
        raise KeyboardInterrupt
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/after-9.safetensors").write_bytes(b"mine")
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    for resume in (lambda: Recorder(tmp_path / "run", after=0), lambda: sy.resume(tmp_path / "run")):
        with pytest.raises(InputError, match=f"{name} is a symbolic link"):
            resume()
    assert (tmp_path / "precious/after-9.safetensors").read_bytes() == b"mine"
