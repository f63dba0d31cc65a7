"""The server's side of a Ray cluster: which node has which jobs, what came of them, and which nodes died.

A worker that dies or is late is replaced by its node. A node that dies loses the jobs that it has not
answered: they are run again, by itself when it has started anew, or by others.
"""

import io
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from steelyard.client.learner import Trained
from steelyard.client.private_state import PrivateStates
from steelyard.engines.attempts import ATTEMPTS, Attempt
from steelyard.engines.base import Deadline, Scored, nothing
from steelyard.engines.buffers import LocalBuffers
from steelyard.engines.common_test import ScoreRequest
from steelyard.engines.pool_sites import PoolSites, log
from steelyard.engines.ray_batches import Key, deal, keys, portion, rest
from steelyard.engines.ray_cluster import FREE_SECONDS, free_cpus, last_line
from steelyard.engines.ray_node import Batch, Done, Node, arrays, selection
from steelyard.engines.runner import SiteRunner
from steelyard.engines.vectorized import VectorizedRunner, pays, why_not
from steelyard.engines.worker import Arrays, Begin, Job, OnCommon, Train
from steelyard.engines.workload import Workload
from steelyard.errors import InputError, SteelyardError
from steelyard.types import Broadcast, ClientId, Failure, Message

START_SECONDS = 600.0  # to wait for a first node
LOOK_SECONDS = 5.0  # between two looks for nodes that have joined
FREED_SECONDS = 0.5  # until the CPUs of an actor that has ended are free
GRACE_SECONDS = 5.0  # after a deadline, in which nodes send what was done in time
MAX_IN_CALL = 64 << 10  # bytes that go with a call; above 100 kB, Ray would store them for each call
BATCH_BYTES = 256 << 20  # of updates in a batch, which a node has memory for


@dataclass(eq=False)
class RayNode:
    """The handle of a node's actor: what is awaited of it, and which jobs it has not answered."""

    id: str
    workers: int
    actor: Any
    awaited: Any
    """The start, then the blocks of a batch; None while the node is idle."""
    started: bool = False
    open: dict[Key, Attempt] = field(default_factory=dict)


class RaySites(PoolSites):
    """Sites on the nodes of a Ray cluster."""

    def __init__(
        self, ray: Any, workload: Workload, states: PrivateStates, workers: int | None, node: str
    ) -> None:
        """`workers` is the most of the whole cluster; `node` is how nodes work, see `Ray`."""
        super().__init__(workload, states, 1, VectorizedRunner if node == "vectorized" else SiteRunner)
        self.ray, self.limit, self.undecided = ray, workers, node == "auto"
        self.packed = ray.put(pack(workload, ray.cloudpickle))
        self.actor = ray.remote(Node)
        self.nodes: list[RayNode] = []
        self.room, self.failed_starts, self.next_look = 1, 0, Deadline(LOOK_SECONDS)
        self.sent: tuple[Message, Any] | None = None
        self._take_nodes(free_cpus(ray, FREE_SECONDS))

    def work(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        requests: Sequence[ScoreRequest],
        deadline: Deadline,
        meanwhile: Callable[[], None] = nothing,
    ) -> Iterator[Trained | Scored | Failure]:
        if train and self.undecided:
            self.undecided = False
            if pays(self.workload, train) and why_not(self.workload) is None:
                self.kind = VectorizedRunner
            self._describe()
            log.info("engine: %s", self.about)
        yield from super().work(broadcast, train, requests, deadline, meanwhile)

    def close(self) -> None:
        for node in self.nodes:
            self.ray.kill(node.actor)
        self.nodes = []

    def _prepare(self, message: Message, rows: int) -> LocalBuffers:
        """Rows for the updates of this round, and the model in Ray's memory; both are kept for the next."""
        if self.buffers is None or self.buffers.up.count < rows:
            self.buffers = LocalBuffers(message, rows)
        self.buffers.write(message)
        if self.sent is None or self.sent[0] is not message:
            self.sent = message, self._down(arrays(message), arrays(message))
        row_bytes = sum(each.nbytes for each in arrays(message).values())
        self.room = max(self.room, min(rows, BATCH_BYTES // max(row_bytes, 1)))
        return self.buffers

    def _run(
        self,
        jobs: Sequence[Job],
        deadline: Deadline,
        begin: Begin | None = None,
        meanwhile: Callable[[], None] = nothing,
    ) -> Iterator[tuple[Job, Any]]:
        waiting = deque(self._attempt(job, deadline) for job in jobs)
        begun = self._down(begin, begin.offers if begin else {})
        deadline = self._await_a_node(deadline)
        self._hand_out(waiting, begun, deadline)
        meanwhile()
        while self._busy():
            left = seconds_left(deadline, GRACE_SECONDS)
            ready = self._ready(left)
            if not ready and left is not None:
                yield from self._drop_late_nodes(deadline)
            for node in ready:
                yield from self._receive(node, waiting)
            deadline = self._await_a_node(deadline)
            self._hand_out(waiting, begun, deadline)
        yield from ((attempt.job, attempt.late(deadline)) for attempt in waiting)

    def _down(self, value: Any, parts: Arrays) -> Any:
        """What all nodes get: in Ray's memory, from where each fetches it once, or in the call if small."""
        large = sum(each.nbytes for each in parts.values()) > MAX_IN_CALL
        return self.ray.put(value) if large else value

    def _busy(self) -> list[RayNode]:
        return [node for node in self.nodes if node.open]

    def _hand_out(self, waiting: "deque[Attempt]", begun: Any, deadline: Deadline) -> None:
        """Give jobs to the nodes that have none."""
        assert self.sent is not None
        for node in self.nodes:
            if not waiting or deadline.left() == 0:
                return
            if not node.started or node.open:
                continue
            attempts = portion(waiting, node.workers, self.count, self.room)
            node.open = {key: attempt for attempt in attempts for key in keys(attempt.job)}
            jobs, time_left = [each.job for each in attempts], deadline.left()
            batch = Batch(jobs, self.kind, self.room, deadline.seconds, time_left)
            node.awaited = node.actor.answer.remote(self.sent[1], begun, batch)

    def _ready(self, seconds: float | None) -> list[RayNode]:
        """Nodes that have sent something or died, or none after some seconds."""
        awaited = {node.awaited: node for node in self.nodes if node.awaited is not None}
        done, _ = self.ray.wait(list(awaited), timeout=seconds) if awaited else ([], [])
        return [awaited[each] for each in done]

    def _receive(self, node: RayNode, waiting: "deque[Attempt]") -> Iterator[tuple[Job, Any]]:
        """What a node has sent."""
        try:
            block = self.ray.get(next(node.awaited) if node.started else node.awaited)
        except (self.ray.exceptions.RayError, StopIteration) as error:
            yield from self._lose(node, error, waiting)
            return
        if not node.started:
            node.started, node.awaited, self.failed_starts = True, None, 0
            self._describe()
            return
        for done in block:
            attempt, *_ = [node.open.pop(key) for key in keys(done.job)]
            answer = attempt.answered(self._take(done), waiting)
            if answer is not None:
                yield done.job, answer
        if not node.open:
            node.awaited = None

    def _take(self, done: Done) -> Any:
        """The answer as from a worker of the pool; updates are copied into their rows."""
        if isinstance(done.job, OnCommon) and isinstance(done.answer, tuple):  # Ray's memory is read-only
            return done.answer[0].copy(), done.answer[1]
        if isinstance(done.job, Train):
            assert self.buffers is not None
            for name, rows in done.updates.items():
                getattr(self.buffers.up.matrices, name).numpy()[selection(done.job.rows)] = rows
        return done.answer

    def _await_a_node(self, deadline: Deadline) -> Deadline:
        """Wait until there is a node, at the start or after all have died; a deadline begins only then."""
        if self.next_look.left() == 0:
            self._take_nodes(free_cpus(self.ray))
        if any(node.started for node in self.nodes):
            return deadline
        patience = Deadline(START_SECONDS)
        while not any(node.started for node in self.nodes):
            if patience.left() == 0:
                raise SteelyardError("no Ray worker has started; has the cluster a free CPU?")
            if not self.nodes:
                time.sleep(0.1)
                self._take_nodes(free_cpus(self.ray))
            for node in self._ready(LOOK_SECONDS):
                for _ in self._receive(node, deque()):
                    pass
        return Deadline(deadline.seconds)

    def _take_nodes(self, free: dict[str, int]) -> None:
        """Start an actor on each node that has none, as far as more workers are wanted."""
        self.next_look = Deadline(LOOK_SECONDS)
        for node in self.nodes:
            free.pop(node.id, None)
        wanted = None if self.limit is None else self.limit - sum(node.workers for node in self.nodes)
        for id, workers in deal(wanted, free).items():
            place = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(id, soft=False)
            actor = self.actor.options(num_cpus=workers, scheduling_strategy=place).remote()
            self.nodes.append(RayNode(id, workers, actor, actor.start.remote(self.packed, workers)))
        self._describe()

    def _lose(self, node: RayNode, error: Exception, waiting: "deque[Attempt]") -> Iterator[tuple[Job, Any]]:
        """Drop a node that died; its jobs are tried again, or given up after too many deaths."""
        if not node.started:
            self._check_start(error)
        left, node.open = node.open, {}
        self._drop(node, last_line(error))
        for attempt in reversed(dict.fromkeys(left.values())):
            attempt.job = rest(attempt.job, left)
            answer = attempt.retry_or_fail(waiting)
            if answer is not None:
                yield attempt.job, answer

    def _check_start(self, error: Exception) -> None:
        """A node that dies while it starts may be chance; if all do, the run cannot go on."""
        self.failed_starts += 1
        raised = isinstance(error, self.ray.exceptions.RayTaskError)
        if raised or self.failed_starts >= ATTEMPTS * len(self.nodes):
            raise SteelyardError(f"a Ray worker cannot start: {last_line(error)}")

    def _drop_late_nodes(self, deadline: Deadline) -> Iterator[tuple[Job, Any]]:
        """Replace nodes that are silent after a deadline; their jobs have failed."""
        for node in self._busy():
            left, node.open = node.open, {}
            self._drop(node, "no answer by the deadline")
            for attempt in dict.fromkeys(left.values()):
                attempt.job = rest(attempt.job, left)
                yield attempt.job, attempt.late(deadline)

    def _drop(self, node: RayNode, reason: str) -> None:
        """Give up an actor; the next look starts another one on its node, if that is there."""
        log.warning("node %s of the Ray cluster is dropped: %s", node.id, reason)
        self.ray.kill(node.actor)
        self.nodes.remove(node)
        self.next_look = Deadline(FREED_SECONDS)
        self._describe()

    def _describe(self) -> None:
        """Count the workers, and say which nodes are at work."""
        self.count = max(1, sum(node.workers for node in self.nodes))
        nodes = [node for node in self.nodes if node.started]
        workers = sum(node.workers for node in nodes)
        kind = "ray" if self.kind is SiteRunner else f"ray, {self.kind.name}"
        self.about = f"{kind}, {counted(workers, 'worker')} on {counted(len(nodes), 'node')}"


def seconds_left(deadline: Deadline, more: float) -> float | None:
    """Seconds until some time after a deadline."""
    return None if deadline.end is None else max(0.0, deadline.end + more - time.monotonic())


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def pack(workload: Workload, pickle: Any) -> NDArray[np.uint8]:
    """A workload as bytes. Tensors that are parts of one table bring it once; pickle alone, once for each."""
    buffer = io.BytesIO()
    try:
        torch.save(workload, buffer, pickle_module=pickle, pickle_protocol=5)
    except Exception as error:  # whatever a user's class does when it is pickled
        raise InputError(f"the ray engine cannot send these clients to its workers: {error}.") from error
    return np.frombuffer(buffer.getbuffer(), np.uint8)
