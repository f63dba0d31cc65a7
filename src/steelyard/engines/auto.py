"""The fastest engine for the work at hand."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from steelyard.engines.base import Engine, Look, Session, Workload, one_thread
from steelyard.engines.pool import PoolSession, cores
from steelyard.engines.serial import SerialSession
from steelyard.engines.vectorized import VectorizedSession, pays, why_not
from steelyard.types import Broadcast, ClientId, Failure, Message, State, Trained

WORTH = 0.03  # seconds that a pool must save in a round


@dataclass(frozen=True)
class Auto(Engine):
    """Small models together where a rule says that it pays; else a pool of workers where it saves time.

    Whether a pool saves time is decided by timing a client of the first round: serial and pool give the same
    bits, so that choice is free. The rule sees only the model and the data, so equal runs choose alike.
    """

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        session = AutoSession(workload, cores())
        with one_thread():
            try:
                yield session
            finally:
                session.close()


class AutoSession:
    """Serial until the first round has shown what there is to do."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload, self.workers = workload, workers
        self.serial = SerialSession(workload)
        self.pool: PoolSession | None = None
        self.decided = False
        self.about = self.serial.about

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        if not self.decided and pays(self.workload, clients) and why_not(self.workload) is None:
            self._take(PoolSession(self.workload, self.workers, VectorizedSession, len(clients)))
        elif not self.decided and self.workers > 1 and len(clients) > 1:
            yield from self._try(broadcast, clients, states)
            return
        yield from (self.pool or self.serial).train(broadcast, clients, states)

    def predict(self, message: Message, look: Look) -> Tensor:
        return (self.pool or self.serial).predict(message, look)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()

    def _try(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        """Train serially until a client has been timed, and the rest where it is faster."""
        stream = self.serial.train(broadcast, clients, states)
        yield next(stream)  # warms up
        start = time.perf_counter()
        yield next(stream)
        seconds = time.perf_counter() - start
        saved = seconds * len(clients) * (1 - 1 / min(self.workers, len(clients)))
        if saved > WORTH:
            done = {client for group in self.serial.groups(self.workload, clients, 2)[:1] for client in group}
            pool = self._take(PoolSession(self.workload, self.workers, rows=len(clients)))
            rest = [client for client in clients if client not in done]
            stream = pool.train(broadcast, rest, states)
        self.decided = True
        self.about += f"; a client takes {1000 * seconds:.1f} ms"
        yield from stream

    def _take(self, pool: PoolSession) -> PoolSession:
        self.decided, self.pool, self.about = True, pool, pool.about
        return pool
