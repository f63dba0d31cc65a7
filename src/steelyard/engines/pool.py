"""Worker processes on one machine, or this process alone where it may not start others."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from steelyard.client.private_state import PrivateStates
from steelyard.engines.base import Engine, SimulatedSites
from steelyard.engines.pool_sites import PoolSites
from steelyard.engines.runner import SiteRunner
from steelyard.engines.serial_sites import SerialSites
from steelyard.engines.workload import Workload
from steelyard.errors import InputError
from steelyard.threads import check_threads, check_workers, cores, one_thread


@dataclass(frozen=True)
class Pool(Engine):
    """Worker processes: as many as there are cores for their threads, unless `workers` says otherwise.

    Each has one thread. With several `threads`, torch uses so many cores for a client, which pays for large
    models and few clients: the last bits belong to their number, and are those of `serial` with as many.
    """

    workers: int | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        check_workers(self.workers)
        check_threads(self.threads)

    @contextmanager
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[SimulatedSites]:
        workload = workload.with_threads(self.threads)
        with open_pool(workload, states, self.workers, SiteRunner, round_seconds) as sites:
            yield sites


@contextmanager
def open_pool(
    workload: Workload,
    states: PrivateStates,
    workers: int | None,
    kind: type[SiteRunner],
    round_seconds: float | None,
) -> Iterator[SimulatedSites]:
    """A pool whose workers each have a runner of the given kind."""
    with one_thread():
        workers = workers or max(1, cores() // workload.threads)
        sites = start_sites(workload, states, workers, kind, round_seconds is not None)
        try:
            yield sites
        finally:
            sites.close()


def start_sites(
    workload: Workload,
    states: PrivateStates,
    workers: int,
    kind: type[SiteRunner],
    has_deadline: bool,
    rows: int = 1,
) -> PoolSites | SerialSites:
    """A pool or, in a daemonic process, which may not start others, sites that run in it; same bits."""
    if not multiprocessing.current_process().daemon:
        return PoolSites(workload, states, workers, kind, rows)
    if has_deadline:
        raise InputError(
            "round_seconds needs worker processes, and a daemonic process (multiprocessing.Pool) may not "
            "start them: take concurrent.futures.ProcessPoolExecutor, or leave round_seconds out."
        )
    return SerialSites(workload, states, kind(workload), "a daemonic process may not start workers")
