"""Runs of a study that were interrupted or killed are continued, and leave no extra folders."""

import multiprocessing
import shutil
import signal
from pathlib import Path
from typing import Any

import interrupting
import pytest

import steelyard as sy
from steelyard.runs.folder import Lock
from steelyard.runs.reader import Run, runs_in
from steelyard.specs.schema import load_spec
from steelyard.studies import parallel_runs
from steelyard.studies.comparison import compare
from steelyard.studies.parallel_runs import run_all
from steelyard.types import Round

SPEC: dict[str, Any] = {"rounds": 5, "data": {"clients": 3}, "training": {"steps": 1}, "engine": "serial"}


def interrupted(out: Path) -> Path:
    def stop(round: Round) -> None:
        if round.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sy.run(SPEC, stop, out=out)
    (run,) = runs_in(out)
    return run.path


def killed(out: Path) -> Path:
    """The folder of a run as kill -9 leaves it: a copy from the middle of the run."""

    def copy(round: Round) -> None:
        if round.number == 3:
            (run,) = runs_in(out.with_name("other"))
            shutil.copytree(run.path, out / run.path.name)

    out.mkdir()
    sy.run(SPEC, copy, out=out.with_name("other"))
    (run,) = runs_in(out)
    assert run.meta["status"] == "running"
    return run.path


@pytest.mark.parametrize("broken_off", [interrupted, killed])
def test_run_all_continues_a_run_that_broke_off(broken_off: Any, tmp_path: Path) -> None:
    wanted = sy.run(SPEC, out=tmp_path / "whole")
    path = broken_off(tmp_path / "runs")
    (outcome,) = run_all([load_spec(SPEC)], tmp_path / "runs")
    assert (outcome.path, outcome.error) == (str(path), "")
    assert outcome.metrics["accuracy"] == wanted.accuracy
    assert [each.name for each in (tmp_path / "runs").iterdir()] == [path.name]
    assert wanted.path is not None
    assert Run(path).rounds == Run(wanted.path).rounds


def test_workers_continue_runs_too(tmp_path: Path) -> None:
    path = interrupted(tmp_path)
    outcomes = run_all([load_spec(SPEC), load_spec(SPEC, {"seed": 1})], tmp_path, workers=2)
    assert outcomes[0].path == str(path)
    assert len(list(tmp_path.iterdir())) == 2


def test_compare_continues_a_run_that_broke_off(tmp_path: Path) -> None:
    path = interrupted(tmp_path)
    (row,) = compare([SPEC], [0], out=tmp_path)
    assert row["runs"] == [str(path)]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_ctrl_c_while_a_worker_loads_its_modules_prints_nothing_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parallel_runs, "_start_worker", interrupting.start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as on a terminal
    try:
        with parallel_runs.processes(1) as pool:
            found = parallel_runs.submitted(pool, interrupting.handlers).result(timeout=300)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [signal.SIG_IGN, signal.SIG_IGN], "ignored from now on, and not blocked"
    assert capfd.readouterr().err == ""
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this process still gets them"


def test_a_worker_begins_no_run_after_the_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = multiprocessing.get_context("spawn").Event()
    stop.set()
    monkeypatch.setattr(parallel_runs, "_stop", stop)
    with pytest.raises(KeyboardInterrupt):
        parallel_runs._run_one(parallel_runs.Job(load_spec(SPEC), tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_run_that_another_process_writes_is_left_to_it(tmp_path: Path) -> None:
    path = interrupted(tmp_path)
    lock = Lock(path)
    (outcome,) = run_all([load_spec(SPEC)], tmp_path)
    lock.release()
    assert outcome.path is not None
    assert outcome.path != str(path)
    assert Run(path).meta["status"] == "interrupted"
