"""Many runs that do not depend on each other: what is recorded is not run again, the rest share the cores."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch

import steelyard
from steelyard.engines.cores import CORES_VARIABLE, cores
from steelyard.errors import SteelyardError
from steelyard.runs.reader import Run, runs_in
from steelyard.specs.running import run
from steelyard.specs.schema import Spec
from steelyard.types import Round

Key = tuple[str, str]
"""A fingerprint and a version: two runs that have both in common give the same numbers."""
Job = tuple[Key, Spec]
Watch = Callable[[int, int], None]
"""Is told how many runs are done, and of how many; what was recorded before does not count."""


@dataclass(frozen=True)
class Outcome:
    """The last round of a run, or why there is none."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    path: str | None = None
    error: str = ""


def run_all(
    specs: Sequence[Spec],
    out: Path | None = Path("runs"),
    workers: int | None = 1,
    watch: Watch = lambda done, total: None,
) -> list[Outcome]:
    """The outcome of each spec. A run that fails does not stop the others.

    `out` is where runs are recorded and looked for (None: neither). More than one worker are processes that
    start afresh, so a script that asks for them needs `if __name__ == "__main__":`; None means all cores.
    """
    finished = {} if out is None else finished_runs(out)
    keys = [key_of(spec) for spec in specs]
    outcomes = {key: _recorded(finished[key]) for key in keys if key in finished}
    jobs = {key: spec for key, spec in zip(keys, specs, strict=True) if key not in finished}
    watch(0, len(jobs))
    count = min(workers or cores(), len(jobs))
    stream = _in_processes(jobs, out, count) if count > 1 else _one_by_one(jobs, out)
    for done, (key, outcome) in enumerate(stream, start=1):
        outcomes[key] = outcome
        watch(done, len(jobs))
    return [outcomes[key] for key in keys]


def finished_runs(out: Path) -> dict[Key, Run]:
    """The runs in a folder that need not be run again."""
    metas = ((each, each.meta) for each in runs_in(out))
    return {
        (meta.get("fingerprint", ""), meta.get("version", "")): each
        for each, meta in metas
        if meta.get("status") == "finished"
    }


def key_of(spec: Spec) -> Key:
    """What a run of this spec, made now, would be found under."""
    return spec.fingerprint(), steelyard.__version__


def _recorded(run: Run) -> Outcome:
    return Outcome(_final(run.rounds), str(run.path))


def _final(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers of the last round; what is unknown or not a number is left out."""
    last = rounds[-1] if rounds else {}
    return {name: value for name, value in last.items() if value is not None and value == value}


def _run_one(spec: Spec, out: Path | None) -> Outcome:
    try:
        result = run(spec, _stop_if_asked, out=out)
    except Exception as error:  # one run cannot break the others
        known = isinstance(error, SteelyardError)
        return Outcome(error=str(error) if known else f"{type(error).__name__}: {error}")
    return Outcome(_final(result.history), None if result.path is None else str(result.path))


def _one_by_one(jobs: Mapping[Key, Spec], out: Path | None) -> Iterator[tuple[Key, Outcome]]:
    for key, spec in jobs.items():
        yield key, _run_one(spec, out)


def _in_processes(jobs: Mapping[Key, Spec], out: Path | None, workers: int) -> Iterator[tuple[Key, Outcome]]:
    """A process that dies takes others with it: what they ran is run again, one by one, to find the cause."""
    waiting = deque(jobs.items())
    while waiting:
        for key, spec in (yield from _together(waiting, out, workers)):
            with _processes(1) as pool:
                future = pool.submit(_run_one, spec, out)
                died = isinstance(future.exception(), BrokenProcessPool)
            yield key, Outcome(error="its process died") if died else future.result()


def _together(
    waiting: deque[Job], out: Path | None, workers: int
) -> Generator[tuple[Key, Outcome], None, list[Job]]:
    """Work until nothing waits, or until a process dies; returns the jobs that were lost with it."""
    running: dict[Future[Outcome], Job] = {}
    with _processes(workers) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < workers:  # no more, so that little is lost at a time
                    running[pool.submit(_run_one, waiting[0][1], out)] = waiting[0]
                    waiting.popleft()
                done = wait(running, return_when=FIRST_COMPLETED).done
                for future in sorted(done, key=lambda each: each.exception() is not None):
                    outcome = future.result()
                    yield running.pop(future)[0], outcome
        except BrokenProcessPool:
            pass
    return list(running.values())


@contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes of one thread each, which stop after their round when this process is interrupted."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit locks of torch and of the display
    stop = context.Event()
    with ProcessPoolExecutor(count, context, _begin, (stop, max(1, cores() // count))) as pool:
        try:
            yield pool
        finally:
            stop.set()


_stop: Event | None = None


def _begin(stop: Event, share: int) -> None:
    """A worker has its share of the cores, leaves Ctrl-C to the process that started it, and dies with it."""
    global _stop
    _stop = stop
    os.environ[CORES_VARIABLE] = str(share)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _stop_if_asked(round: Round) -> None:
    """Between rounds, a worker looks whether it should stop."""
    if _stop is not None and _stop.is_set():
        raise KeyboardInterrupt
