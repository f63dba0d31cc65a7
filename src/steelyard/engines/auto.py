"""Serial or pool, whichever is faster here. Both give the same bits, so the choice is free."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from steelyard.engines.base import Engine, Session, Workload, one_thread
from steelyard.engines.pool import PoolSession, cores
from steelyard.engines.serial import SerialSession
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message, State, Trained

WORTH = 0.03  # seconds that a pool must save in a round


@dataclass(frozen=True)
class Auto(Engine):
    """A pool of workers where it saves time, decided by timing a client of the first round."""

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        session = AutoSession(workload, cores())
        with one_thread():
            try:
                yield session
            finally:
                session.close()


class AutoSession:
    """Serial until a client has been timed."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.serial = SerialSession(workload)
        self.workload, self.workers = workload, workers
        self.pool: PoolSession | None = None
        self.decided = workers == 1
        self.about = "serial"

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        rest = list(clients)
        if not self.decided and len(rest) > 1:
            yield self.serial.train_one(broadcast, rest[0], states.get(rest[0], EMPTY))  # warms up
            start = time.perf_counter()
            yield self.serial.train_one(broadcast, rest[1], states.get(rest[1], EMPTY))
            self._decide(time.perf_counter() - start, len(rest))
            rest = rest[2:]
        yield from (self.pool or self.serial).train(broadcast, rest, states)

    def predict(self, message: Message, client: ClientId | None) -> Tensor:
        return (self.pool or self.serial).predict(message, client)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()

    def _decide(self, seconds: float, clients: int) -> None:
        self.decided = True
        saved = seconds * clients * (1 - 1 / min(self.workers, clients))
        if saved > WORTH:
            self.pool = PoolSession(self.workload, self.workers, clients)
        kind = "serial" if self.pool is None else self.pool.about
        self.about = f"{kind}; a client takes {1000 * seconds:.1f} ms"
