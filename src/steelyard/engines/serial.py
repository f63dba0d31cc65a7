"""One client after the other, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from steelyard.client.private_state import PrivateStates
from steelyard.engines.base import Engine, SimulatedSites
from steelyard.engines.pool import open_pool
from steelyard.engines.runner import SiteRunner
from steelyard.engines.serial_sites import SerialSites
from steelyard.engines.workload import Workload
from steelyard.threads import check_threads, one_thread


@dataclass(frozen=True)
class Serial(Engine):
    """One client after the other, in this process.

    Code in this process cannot be interrupted, so with a deadline (`round_seconds`) clients run in one worker
    process, which can be replaced. With several `threads`, torch uses so many cores for a client, which pays
    for large models: the last bits belong to their number.
    """

    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        check_threads(self.threads)

    @contextmanager
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[SimulatedSites]:
        workload = workload.with_threads(self.threads)
        if round_seconds is not None:
            with open_pool(workload, states, 1, SiteRunner, round_seconds) as sites:
                sites.about = f"serial{workload.in_words}, in one worker because of the deadline"
                yield sites
        else:
            with one_thread():
                yield SerialSites(workload.on(self.device), states)
