"""Clients trained together, many to a kernel: for small models, which cost more to call than to train."""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from torch import nn

from steelyard.client.containment import run_contained
from steelyard.client.learner import Trained, batches_per_epoch, count_steps
from steelyard.client.private_state import PrivateStates
from steelyard.data.examples import StreamExamples
from steelyard.engines.base import Engine, SimulatedSites
from steelyard.engines.joint_training import train_together, trial_batch, why_not_stacked
from steelyard.engines.pool import open_pool
from steelyard.engines.runner import SiteRunner
from steelyard.engines.serial_sites import SerialSites
from steelyard.engines.stacked_model import StackedModel
from steelyard.engines.workload import Workload
from steelyard.errors import InputError
from steelyard.layout import layout_of
from steelyard.threads import check_workers, one_thread
from steelyard.types import Broadcast, ClientId, Failure, Message, State

STACK_BYTES = 8 << 20  # of parameters trained together, so that they stay in the cache
MAX_GROUP = 64  # clients trained together; more gain nothing
MIN_GROUP = 16  # clients that are worth a group of their own
MIN_CLIENTS_PER_STEP = 8  # clients training in a step, on average, for joint training to pay
MAX_STEP_WORK = 3_000_000  # parameters × examples of a step, above which arithmetic outweighs the calls
MIN_GROUPS = 2  # if there are enough clients, so that several workers have work


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
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[SimulatedSites]:
        if reason := why_not(workload):
            raise InputError(f"the vectorized engine cannot train this: {reason}. Take another engine.")
        if self.device != "cpu":
            with one_thread():
                yield SerialSites(workload, states, VectorizedRunner(workload.on(self.device)))
        else:
            with open_pool(workload, states, self.workers, VectorizedRunner, round_seconds) as pool:
                yield pool


class VectorizedRunner(SiteRunner):
    """A stack of models serves a group of clients at a time."""

    name = "vectorized"
    trains_together = True

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.stack: StackedModel | None = None

    @staticmethod
    def groups(workload: Workload, clients: Sequence[ClientId], chunk: int) -> list[Sequence[ClientId]]:
        """Groups of clients with similar numbers of steps that fit the cache, for any number of workers."""
        order = sorted(clients, key=lambda client: (-_steps(workload, client), client))
        width = max(1, min(MAX_GROUP, STACK_BYTES // (4 * _parameters(workload))))
        count = max(math.ceil(len(order) / width), min(MIN_GROUPS, len(order) // MIN_GROUP), 1)
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
            self.stack = StackedModel(self.workload.model, len(clients), self.workload.learner.place.device)
        together = partial(self._train_together, self.stack, broadcast, clients, states, rows)
        outcomes = run_contained("the group", "training", together, self.own_code)
        if isinstance(outcomes, Failure) or outcomes is None:  # one is at fault: alone, it fails by itself
            return super().train_group(broadcast, clients, states, rows)
        return [*outcomes]

    def _train_together(
        self,
        stack: StackedModel,
        broadcast: Broadcast,
        clients: Sequence[ClientId],
        states: Sequence[State],
        rows: Sequence[Message],
    ) -> list[Trained] | None:
        """What came of a group; None if a client has a model of its own."""
        members = [self.workload.clients[client] for client in clients]
        if any(member.model is not None for member in members):
            return None
        data = [member.train for member in members]
        return train_together(self.workload.learner, stack, clients, data, broadcast, states, rows)


def why_not(workload: Workload) -> str | None:
    """The reason why clients cannot be trained together, if there is one."""
    if workload.model is None or workload.may_have_own_models(workload.ids):
        return "clients have models of their own"
    if not workload.learner.task.plain:
        return "a batch is not one tensor of inputs with one target for each example"
    for id in workload.checked:
        if isinstance(workload.clients[id].train, StreamExamples):
            return f"the training data of client {id!r} come in batches of their own"
    for id in workload.checked:
        batch = run_contained(id, "reading", partial(trial_batch, workload.clients[id].train))
        if not isinstance(batch, Failure):
            why = partial(why_not_stacked, workload.learner, workload.model, *batch)
            found = run_contained(id, "training", why)
            return found.reason if isinstance(found, Failure) else found
    return "no client's data can be read"


def pays(workload: Workload, clients: Sequence[ClientId]) -> bool:
    """Whether a round should be faster so: a rule, not a measurement, so that equal runs decide alike."""
    learner = workload.learner
    if workload.model is None or workload.may_have_own_models(clients):
        return False
    steps = {client: _steps(workload, client) for client in clients}
    together = sum(
        max(steps[client] for client in group) for group in VectorizedRunner.groups(workload, clients, 1)
    )
    work = _parameters(workload) * learner.training.batch_size
    convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in workload.model.modules())
    many = len(clients) >= 2 * MIN_GROUP and sum(steps.values()) >= MIN_CLIENTS_PER_STEP * together
    return many and work <= MAX_STEP_WORK and not convolves


def _parameters(workload: Workload) -> int:
    assert workload.model is not None
    return layout_of(workload.model).size


def _steps(workload: Workload, client: ClientId) -> int:
    training = workload.learner.training
    return count_steps(training, lambda: batches_per_epoch(workload.size(client) or 1, training.batch_size))
