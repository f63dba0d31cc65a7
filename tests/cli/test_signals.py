"""Ctrl-C and SIGTERM end a run in order, with the exit codes that shells expect; a second one at once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calls import process

from steelyard.cli.signals import Interrupted, interruptions
from steelyard.runs.reader import Run, runs_in


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Undo that background processes of a shell ignore SIGINT, which child processes inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_the_run_and_resume_finishes_it(number: int, code: int, place: Path) -> None:
    words = ["rounds=400", "data.clients=3", "training.steps=1", "--out", "out"]
    command = [sys.executable, "-m", "steelyard", "run", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: any(run.rounds for run in runs_in(place / "out")))
        running.send_signal(number)
        stdout, stderr = running.communicate(timeout=300)
    assert (running.returncode, stdout) == (code, "")
    assert "interrupted; the finished rounds are recorded, and `steelyard resume out/" in stderr
    assert "Traceback" not in stderr
    (run,) = runs_in(place / "out")
    assert run.meta["status"] == "interrupted"
    saved = int(run.meta["saved"])
    assert len(run.rounds) == saved < 400, "the last round is saved"
    done = process("resume", str(run.path), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["rounds"] == 400
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    again = process("resume", str(run.path))
    assert again.returncode == 0
    assert "is finished; nothing to do" in again.stderr
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_grid_whose_processes_all_get_sigterm_is_continued_in_the_same_folders(place: Path) -> None:
    """As `systemctl stop` or a batch system does it."""
    words = ["grid", "data.clients=3", "training.steps=1", "--rows", "rounds=900,901", "--workers", "2"]
    command = [sys.executable, "-m", "steelyard", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        wait_for(lambda: sum(len(run.rounds) > 1 for run in runs_in(place / "runs")) == 2)
        os.killpg(running.pid, signal.SIGTERM)
        _, stderr = running.communicate(timeout=300)
    assert running.returncode == 143
    assert "the same command continues" in stderr
    assert "Traceback" not in stderr
    folders = sorted(path.name for path in (place / "runs").iterdir())
    assert {run.meta["status"] for run in runs_in(place / "runs")} == {"interrupted"}
    assert process(*words, "--json").returncode == 0
    assert sorted(path.name for path in (place / "runs").iterdir()) == folders
    assert {run.meta["status"] for run in runs_in(place / "runs")} == {"finished"}


def test_resume_beside_a_live_run_is_one_sentence_with_code_2(place: Path) -> None:
    command = [sys.executable, "-m", "steelyard", "run", "rounds=100000", "data.clients=3", "--out", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            wait_for(lambda: any(run.rounds for run in runs_in(place / "out")))
            (run,) = runs_in(place / "out")
            done = process("resume", str(run.path))
        finally:
            running.kill()
            running.communicate()
    assert done.returncode == 2
    assert f"is being written by process {running.pid} on " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert Run(run.path).meta["status"] == "running"


SECOND = """
import signal, sys, time
from steelyard.cli.signals import interruptions

with interruptions():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("saving", flush=True)
        time.sleep(600)  # a state that takes long to save
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_process_at_once(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", SECOND], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for word in ("ready\n", "saving\n"):
            assert running.stdout.readline() == word
            running.send_signal(number)
        assert running.wait(60) == -number


def test_handlers_are_restored_and_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interruptions():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert issubclass(Interrupted, KeyboardInterrupt)
