"""A worker process that gets Ctrl-C while it still loads its modules, of which this is one."""

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event

from steelyard.studies import parallel_runs

start_worker = parallel_runs._start_worker

if multiprocessing.current_process().name != "MainProcess":
    for number in parallel_runs.STOPPING:
        os.kill(os.getpid(), number)


def start(stop: Event, share: int) -> None:
    start_worker(stop, share)


def handlers() -> list[object]:
    """What the worker does on signals to stop, and which it blocks."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return [*map(signal.getsignal, parallel_runs.STOPPING), *blocked]
