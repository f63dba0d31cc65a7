"""After kill -9 of a run nothing of it stays: no process, no temporary folder."""

import multiprocessing
import multiprocessing.pool
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_containment import data, is_gone, model

import steelyard as sy
from steelyard.client.temporary_folder import PREFIX, temporary_folder
from steelyard.engines import Auto, Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError

PROGRAM = """
import multiprocessing, sys, time
import test_containment as t
hang = (lambda: time.sleep(1000)) if sys.argv[1] == "hung" else (lambda: None)
def tell(round):
    print(*(each.pid for each in multiprocessing.active_children()), flush=True)
    if sys.argv[1] == "idle":
        time.sleep(1000)
import threading
if sys.argv[1] == "hung":
    threading.Timer(2.0, tell, [None]).start()
t.sy.Federation({"a": t.Acting(hang), **t.honest()}, t.model(), engine=t.Pool(2), rounds=5).run(tell)
"""


@pytest.mark.parametrize("state", ["idle", "hung", "stopped"])
def test_workers_end_with_a_killed_parent(state: str) -> None:
    argument = "idle" if state == "stopped" else state
    parent = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, argument],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    if state == "stopped":
        os.kill(workers[0], signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert all(map(is_gone, workers))


def test_the_temporary_folder_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    program = (
        "import time\n"
        "from steelyard.client.temporary_folder import temporary_folder\n"
        "with temporary_folder() as folder:\n"
        "    print(folder, flush=True)\n"
        "    time.sleep(1000)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    with temporary_folder() as mine:
        assert mine.is_dir()
        assert theirs.is_dir(), "it is in use"
    other.kill()
    other.wait()
    other.stdout.close()
    unrelated = tmp_path / f"{PREFIX}unrelated"
    unrelated.mkdir()
    with temporary_folder():
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == [unrelated]


def in_daemon(engine: Engine, seconds: float | None = None) -> Any:
    """Run in a daemonic process; the result is sent back."""
    clients = {f"c{number:02d}": data(12, number) for number in range(40)}
    federation = sy.Federation(clients, model(), engine=engine, rounds=2, round_seconds=seconds)
    try:
        with federation.open() as sites:
            about = federation.server(sites).run() and sites.about
        return federation.run(), about
    except InputError as error:
        return str(error)


@pytest.fixture(scope="module")
def daemon() -> Iterator[multiprocessing.pool.Pool]:
    """A daemonic process. Not a fork: threads of OpenMP, which other tests started, do not survive it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.mark.parametrize("engine", [Auto(), Pool(2), Vectorized(2), Serial()])
def test_a_daemonic_process_runs_all_engines_itself_with_the_same_bits(
    engine: Engine, daemon: multiprocessing.pool.Pool
) -> None:
    found, about = daemon.apply(in_daemon, (engine,))
    wanted, _ = in_daemon(engine)
    assert torch.equal(found.model.weight, wanted.model.weight)
    assert found.clients == wanted.clients
    assert ("a daemonic process may not start workers" in about) is not isinstance(engine, Serial)


def test_a_deadline_in_a_daemonic_process_is_refused(daemon: multiprocessing.pool.Pool) -> None:
    assert "round_seconds needs worker processes" in daemon.apply(in_daemon, (Auto(), 5.0))
