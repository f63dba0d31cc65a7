"""Run many independent specs in parallel processes. Specs that are already recorded are not run again."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

import steelyard
from steelyard.client.interruptions import STOPPING
from steelyard.errors import SteelyardError, SteelyardWarning
from steelyard.runs.reader import Run, runs_in
from steelyard.specs.running import run_or_resume
from steelyard.specs.schema import Spec
from steelyard.threads import CORES_VARIABLE, cores
from steelyard.types import Round

T = TypeVar("T")
Key = tuple[str, str]
"""(fingerprint, version): runs with equal keys give equal numbers."""
Watch = Callable[[int, int], None]
"""Called with (runs done, runs in total); runs that were recorded earlier do not count."""


class Job(NamedTuple):
    """A spec to run, recorded under `out`; an unfinished run of it is continued."""

    spec: Spec
    out: Path | None
    unfinished: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """Metrics of a run's last round and the folder it is recorded in, or the error that ended it."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    path: str | None = None
    error: str = ""
    warning: str = ""
    """What is wrong with a run that came to its end."""


def run_all(
    specs: Sequence[Spec],
    out: Path | None = Path("runs"),
    workers: int | None = 1,
    watch: Watch = lambda done, total: None,
) -> list[Outcome]:
    """Run the specs; returns an outcome for each. A run that fails does not stop the others.

    Runs are recorded under `out`, and those found there are reused; None does neither. `workers` is the
    number of processes (None: one per core). They are spawned: a script needs `if __name__ == "__main__":`.
    """
    finished, unfinished = ({}, {}) if out is None else recorded_runs(out)
    keys = [key_of(spec) for spec in specs]
    outcomes = {key: _recorded(finished[key]) for key in keys if key in finished}
    jobs = {
        key: Job(spec, out, unfinished.get(key))
        for key, spec in zip(keys, specs, strict=True)
        if key not in finished
    }
    watch(0, len(jobs))
    count = min(workers or cores(), len(jobs))
    stream = _in_processes(jobs, count) if count > 1 else _one_by_one(jobs)
    for done, (key, outcome) in enumerate(stream, start=1):
        outcomes[key] = outcome
        watch(done, len(jobs))
    return [outcomes[key] for key in keys]


def recorded_runs(out: Path) -> tuple[dict[Key, Run], dict[Key, Path]]:
    """The finished runs in a folder, and the folders of those that were interrupted or killed."""
    finished: dict[Key, Run] = {}
    unfinished: dict[Key, Path] = {}
    for run in runs_in(out):
        meta = run.meta
        key = (meta.get("fingerprint", ""), meta.get("version", ""))
        if meta.get("status") == "finished":
            finished[key] = run
        else:
            unfinished[key] = run.path
    return finished, unfinished


def key_of(spec: Spec) -> Key:
    """The key of a run of this spec with this version."""
    return spec.fingerprint(), steelyard.__version__


def _recorded(run: Run) -> Outcome:
    return Outcome(_final(run.rounds), str(run.path), warning=run.meta.get("warning", ""))


def _final(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of the last round, without those that are None or NaN."""
    last = rounds[-1] if rounds else {}
    return {name: value for name, value in last.items() if value is not None and value == value}


def _run_one(job: Job) -> Outcome:
    _stop_if_asked()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)  # they are part of the outcome
            result = run_or_resume(job.spec, job.unfinished, _stop_if_asked, out=job.out)
    except Exception as error:  # a failed run must not stop the others
        message = str(error) if isinstance(error, SteelyardError) else f"{type(error).__name__}: {error}"
        return Outcome(error=message)
    path = None if result.path is None else str(result.path)
    return Outcome(_final(result.history), path, warning=" ".join(result.warnings))


def _one_by_one(jobs: Mapping[Key, Job]) -> Iterator[tuple[Key, Outcome]]:
    for key, job in jobs.items():
        yield key, _run_one(job)


def _in_processes(jobs: Mapping[Key, Job], workers: int) -> Iterator[tuple[Key, Outcome]]:
    """If a process dies, its pool is lost: those jobs go on, each in a new process, to find the cause."""
    waiting = deque(jobs.items())
    while waiting:
        for key, job in (yield from _in_one_pool(waiting, workers)):
            begun = {} if job.out is None else recorded_runs(job.out)[1]
            with processes(1) as pool:
                future = submitted(pool, _run_one, job._replace(unfinished=begun.get(key)))
                died = isinstance(future.exception(), BrokenProcessPool)
            yield key, Outcome(error="its process died") if died else future.result()


def _in_one_pool(
    waiting: deque[tuple[Key, Job]], workers: int
) -> Generator[tuple[Key, Outcome], None, list[tuple[Key, Job]]]:
    """Run jobs until none is waiting or a process dies; returns the jobs lost with the pool."""
    running: dict[Future[Outcome], tuple[Key, Job]] = {}
    with processes(workers) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < workers:  # a dead pool loses no more jobs
                    running[submitted(pool, _run_one, waiting[0][1])] = waiting[0]
                    waiting.popleft()
                done = wait(running, return_when=FIRST_COMPLETED).done
                for future in sorted(done, key=lambda finished: finished.exception() is not None):
                    outcome = future.result()
                    yield running.pop(future)[0], outcome
        except BrokenProcessPool:
            pass
    return list(running.values())


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread each that stop after their current round when this process is interrupted."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit locks of torch and rich
    stop = context.Event()
    with ProcessPoolExecutor(count, context, _start_worker, (stop, max(1, cores() // count))) as pool:
        try:
            yield pool
        finally:
            stop.set()


def submitted(pool: ProcessPoolExecutor, function: Callable[..., T], *arguments: Any) -> Future[T]:
    """Like `pool.submit`. If that starts a process, the process inherits that signals to stop are blocked.

    Without that, Ctrl-C would end it with a traceback in the seconds before `_start_worker` ignores Ctrl-C.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        return pool.submit(function, *arguments)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


_stop: Event | None = None  # set in each worker process: an Event cannot be sent with a job


def _start_worker(stop: Event, share: int) -> None:
    """Limit a worker to its share of the cores and exit when the parent process does.

    Ctrl-C and SIGTERM often reach the whole group of processes: the parent tells its workers to stop.
    """
    global _stop
    _stop = stop
    os.environ[CORES_VARIABLE] = str(share)
    torch.set_num_threads(1)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _stop_if_asked(round: Round | None = None) -> None:
    """Observer that ends a worker's run after a round if the parent process was interrupted."""
    if _stop is not None and _stop.is_set():
        raise KeyboardInterrupt
