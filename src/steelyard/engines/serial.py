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
from steelyard.threads import one_thread


@dataclass(frozen=True)
class Serial(Engine):
    """One client after the other, in this process.

    Code in this process cannot be interrupted, so with a deadline (`round_seconds`) clients run in one worker
    process, which can be replaced.
    """

    device: str = "cpu"

    @contextmanager
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[SimulatedSites]:
        if round_seconds is not None:
            with open_pool(workload, states, 1, SiteRunner, round_seconds) as sites:
                sites.about = "serial, in one worker because of the deadline"
                yield sites
        else:
            with one_thread():
                yield SerialSites(workload.on(self.device), states)
