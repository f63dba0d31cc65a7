"""The fastest engine for the work at hand."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from steelyard.client.evaluation import Predicted
from steelyard.client.learner import Trained
from steelyard.client.private_state import PrivateStates
from steelyard.engines.base import Deadline, Engine, Scored, SimulatedSites, nothing
from steelyard.engines.common_test import ScoreRequest
from steelyard.engines.pool import start_sites
from steelyard.engines.pool_sites import PoolSites
from steelyard.engines.runner import SiteRunner
from steelyard.engines.serial import Serial
from steelyard.engines.serial_sites import SerialSites
from steelyard.engines.vectorized import VectorizedRunner, pays, why_not
from steelyard.engines.workload import Workload
from steelyard.layout import layout_of
from steelyard.metrics.scores import Scores
from steelyard.threads import check_threads, cores, one_thread
from steelyard.types import Broadcast, ClientId, Failure, Message

log = logging.getLogger("steelyard.engines")

MIN_SAVED = 0.03  # seconds that a pool must save in a round
LARGE_MODEL = 1_000_000  # values of a model that may be worth several threads for each client


@dataclass(frozen=True)
class Auto(Engine):
    """Small models trained together where a rule says that it pays; else a pool where it saves time.

    Whether a pool saves time is decided by timing a client of the first round: serial and pool give the same
    bits, so that choice is free. The rule sees only the model and the data, so equal runs choose alike. With
    a deadline, clients always run in workers, which can be replaced. On a `device` other than the CPU it is
    serial.

    With several `threads`, torch uses so many cores for every client, and none are trained together. The last
    bits belong to that number, so it is never chosen here: machines have different numbers of cores. Where
    few clients with a large model leave cores idle, the record of the run says so.
    """

    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        check_threads(self.threads)

    @contextmanager
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[SimulatedSites]:
        if self.device != "cpu":
            with Serial(self.device, self.threads).open(workload, states, round_seconds) as serial:
                yield serial
            return
        workload = workload.with_threads(self.threads)
        workers = max(1, cores() // self.threads)
        sites = AutoSites(workload, states, workers, has_deadline=round_seconds is not None)
        with one_thread():
            try:
                yield sites
            finally:
                sites.close()


class AutoSites(SimulatedSites):
    """Serial until the first round has shown how much work there is."""

    def __init__(
        self, workload: Workload, states: PrivateStates, workers: int, has_deadline: bool = False
    ) -> None:
        super().__init__(workload, states)
        self.workers, self.has_deadline = workers, has_deadline
        self.serial = SerialSites(workload, states)
        self.pool: PoolSites | SerialSites | None = None
        self.decided = False
        self.about = self.serial.about

    def work(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        requests: Sequence[ScoreRequest],
        deadline: Deadline,
        meanwhile: Callable[[], None] = nothing,
    ) -> Iterator[Trained | Scored | Failure]:
        if train and not self.decided:
            alone = self.workload.threads == 1
            if alone and pays(self.workload, train) and why_not(self.workload) is None:
                self._take(VectorizedRunner, len(train))
            elif self.has_deadline:
                self._take(SiteRunner, len(train))
            elif self.workers > 1 and len(train) > 1:
                meanwhile()
                yield from self.serial.evaluate(broadcast.model_to_score, requests)
                yield from self._try(broadcast, train, deadline)
                return
            else:
                self.decided, self.about = True, self.about + self._idle(len(train))
            log.info("engine: %s", self.about)
        yield from (self.pool or self.serial).work(broadcast, train, requests, deadline, meanwhile)

    def predict_common(self, model: Message) -> Predicted:
        return (self.pool or self.serial).predict_common(model)

    def score_common(self, model: Message, temperature: float = 1.0) -> list[Scores]:
        return (self.pool or self.serial).score_common(model, temperature)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()

    def _try(
        self, broadcast: Broadcast, clients: Sequence[ClientId], deadline: Deadline
    ) -> Iterator[Trained | Scored | Failure]:
        """Train serially until a client has been timed, and the rest where it is faster."""
        stream: Iterator[Trained | Scored | Failure] = self.serial.train(broadcast, clients)
        yield next(stream)  # warms up
        start = time.perf_counter()
        yield next(stream)
        seconds = time.perf_counter() - start
        saved = seconds * len(clients) * (1 - 1 / min(self.workers, len(clients)))
        if saved > MIN_SAVED:
            order = self.serial.runner.groups(self.workload, clients, 2)
            pool = self._take(SiteRunner, len(clients))
            rest = [client for client in clients if client not in set(order[0])]
            stream = pool.work(broadcast, rest, (), deadline)
        self.decided = True
        self.about += f"; a client takes {1000 * seconds:.1f} ms{self._idle(len(clients))}"
        log.info("engine: %s", self.about)
        yield from stream

    def _idle(self, clients: int) -> str:
        """A note on cores that so many clients with a large model leave idle."""
        threads, model = cores() // clients, self.workload.model
        if threads <= self.workload.threads or model is None or layout_of(model).size < LARGE_MODEL:
            return ""
        return f"; cores are idle: engine.threads = {threads} would use them, and change the last bits"

    def _take(self, kind: type[SiteRunner], rows: int) -> PoolSites | SerialSites:
        pool = start_sites(self.workload, self.states, self.workers, kind, self.has_deadline, rows)
        self.decided, self.pool, self.about = True, pool, pool.about
        return pool
