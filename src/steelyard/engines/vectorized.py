"""Clients trained together, many to a kernel: for small models, which cost more to call than to train."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from steelyard.client.learner import count_steps
from steelyard.data.clients import Population
from steelyard.engines.base import Engine, Session, Workload, one_thread
from steelyard.engines.joint_training import StackedModel, train_together, why_not_stacked
from steelyard.engines.pool import check_workers, open_pool
from steelyard.engines.serial import SerialSession
from steelyard.errors import InputError
from steelyard.layout import layout_of
from steelyard.types import Broadcast, ClientId, Failure, Message, State, Trained

STACK_BYTES = 8 << 20  # of parameters trained together, so that they stay in the cache
MOST = 64  # clients together; more gain nothing
FEWEST = 16  # clients that are worth cutting a group for
CROWD = 8  # clients at work in a step, on average, for it to pay
LIGHT = 3_000_000  # parameters × examples of a step, above which arithmetic outweighs the calls
SHARES = 2  # groups, at least, if there are clients enough: for several workers to take


@dataclass(frozen=True)
class Vectorized(Engine):
    """Clients with small models trained together; agrees closely with other engines, not in every bit.

    On a CPU, as many worker processes as there are cores, unless `workers` says otherwise; on another
    `device`, such as "cuda", this process alone.
    """

    workers: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_workers(self.workers)

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        if reason := why_not(workload):
            raise InputError(f"the vectorized engine cannot train this: {reason}. Take another engine.")
        if self.device != "cpu":
            with one_thread():
                yield VectorizedSession(workload, self.device)
        else:
            with open_pool(workload, self.workers, VectorizedSession) as session:
                yield session


class VectorizedSession(SerialSession):
    """A stack of scratch models serves a group of clients at a time."""

    about = "vectorized"

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        super().__init__(workload)
        self.device = device
        self.stack: StackedModel | None = None

    @staticmethod
    def groups(workload: Workload, clients: Sequence[ClientId], chunk: int) -> list[Sequence[ClientId]]:
        """Clients with about as many steps, in groups that fit the cache; alike for any number of workers."""
        order = sorted(clients, key=lambda client: (-_steps(workload, client), client))
        width = max(1, min(MOST, STACK_BYTES // (4 * _parameters(workload))))
        count = max(math.ceil(len(order) / width), min(SHARES, len(order) // FEWEST), 1)
        edges = [round(len(order) * number / count) for number in range(count + 1)]
        return [order[start:stop] for start, stop in itertools.pairwise(edges)]

    def train_group(
        self,
        broadcast: Broadcast,
        clients: Sequence[ClientId],
        states: Sequence[State],
        rows: Sequence[Message],
    ) -> list[Trained | Failure]:
        if self.stack is None or len(self.stack.rows) < len(clients):
            assert self.workload.model is not None
            self.stack = StackedModel(self.workload.model, len(clients), self.device)
        if any(self.workload.clients[client].model is not None for client in clients):
            return super().train_group(broadcast, clients, states, rows)
        try:
            data = [self.workload.clients[client].train for client in clients]
            return [
                *train_together(self.workload.learner, self.stack, clients, data, broadcast, states, rows)
            ]
        except Exception:  # one of them is at fault: alone, it is found, and the others do not suffer
            return super().train_group(broadcast, clients, states, rows)


def why_not(workload: Workload) -> str | None:
    """What keeps a workload's clients from being trained together, if anything does."""
    if workload.model is None or _own_models(workload, workload.clients):
        return "clients have models of their own"
    first = next(iter(workload.clients.values()))
    return why_not_stacked(workload.learner, workload.model, first.train)


def pays(workload: Workload, clients: Sequence[ClientId]) -> bool:
    """Whether a round should be faster so: a rule, not a measurement, so that equal runs decide alike."""
    learner = workload.learner
    if workload.model is None or _own_models(workload, clients):
        return False
    steps = {client: _steps(workload, client) for client in clients}
    together = sum(
        max(steps[client] for client in group) for group in VectorizedSession.groups(workload, clients, 1)
    )
    work = _parameters(workload) * learner.training.batch_size
    convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in workload.model.modules())
    many = len(clients) >= 2 * FEWEST and sum(steps.values()) >= CROWD * together
    return many and work <= LIGHT and not convolves


def _own_models(workload: Workload, clients: Iterable[ClientId]) -> bool:
    """Whether any of them brings one; those of a population are looked at when they are made."""
    if isinstance(workload.clients, Population):
        return False
    return any(workload.clients[client].model is not None for client in clients)


def _parameters(workload: Workload) -> int:
    assert workload.model is not None
    return layout_of(workload.model).size


def _steps(workload: Workload, client: ClientId) -> int:
    return count_steps(workload.size(client) or 1, workload.learner.training)
