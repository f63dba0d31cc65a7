"""Nodes of a Ray cluster: a round moves batches of client ids and the model down, and blocks of updates up.

Every node holds one copy of the workload, which its worker processes share; steelyard and the modules that
a workload comes from must be installed on every machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from steelyard.client.private_state import PrivateStates
from steelyard.engines.base import Engine, SimulatedSites
from steelyard.engines.ray_cluster import connected
from steelyard.engines.ray_sites import RaySites
from steelyard.engines.vectorized import why_not
from steelyard.engines.workload import Workload
from steelyard.errors import InputError
from steelyard.threads import check_workers, cores, one_thread

NODES = ("pool", "vectorized", "auto")


@dataclass(frozen=True)
class Ray(Engine):
    """Worker processes on a Ray cluster: as many as it has free CPUs, unless `workers` says otherwise.

    `address` is the cluster to join; "auto" is the one that this machine belongs to. Without an address, Ray
    is started here and stopped afterwards. If this process uses Ray already, that is used and left running.

    `node` is how each node works, by the name of an engine: "pool" (machines of one kind then give the bits
    of the serial engine), "vectorized" (the bits of the vectorized one), or "auto", which takes "vectorized"
    where the rule of the engine `auto` does.
    """

    workers: int | None = None
    address: str | None = None
    node: str = "pool"

    def __post_init__(self) -> None:
        check_workers(self.workers)
        if self.node not in NODES:
            raise InputError(f"engine.node must be one of {', '.join(NODES)}, not {self.node!r}.")

    @contextmanager
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[SimulatedSites]:
        if self.node == "vectorized" and (reason := why_not(workload)):
            raise InputError(f"clients cannot be trained together: {reason}. Take another engine.node.")
        with connected(self.address, self.workers or cores()) as ray, one_thread():
            sites = RaySites(ray, workload, states, self.workers, self.node)
            try:
                yield sites
            finally:
                sites.close()
