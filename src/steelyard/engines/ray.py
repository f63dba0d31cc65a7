"""Workers on the machines of a Ray cluster: a round moves client ids, the model down and the updates up.

Every worker gets a copy of the workload when it starts; steelyard and the modules that a workload comes from
must be installed on every machine. A worker that dies is replaced and its clients are run again. A worker
that is still busy at the deadline is replaced and its clients have failed.
"""

import importlib
import io
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from steelyard.client.interruptions import signals_noted
from steelyard.client.private_state import PrivateStates
from steelyard.engines.attempts import ATTEMPTS, Attempt
from steelyard.engines.base import Deadline, Engine, SimulatedSites, nothing
from steelyard.engines.buffers import LocalBuffers, UpdateBuffer
from steelyard.engines.pool_sites import PoolSites, log
from steelyard.engines.runner import SiteRunner
from steelyard.engines.worker import (
    Arrays,
    Begin,
    Evaluate,
    Job,
    OnCommon,
    Train,
    do,
    keep_memory,
    tensors,
)
from steelyard.engines.workload import Workload
from steelyard.errors import InputError, SteelyardError
from steelyard.seeds import others_restored
from steelyard.threads import check_workers, cores, one_thread
from steelyard.types import Broadcast, Message

START_SECONDS = 600.0  # to wait for a first worker: a cluster may have to start a machine for it


@dataclass(frozen=True)
class Ray(Engine):
    """Workers on a Ray cluster: as many as it has CPUs, unless `workers` says otherwise.

    `address` is the cluster to join; "auto" is the one that this machine belongs to. Without an address, Ray
    is started here and stopped afterwards. If this process uses Ray already, that is used and left running.
    Machines of one kind give the bits of the serial engine.
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        check_workers(self.workers)

    @contextmanager
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[SimulatedSites]:
        with connected(self.address, self.workers or cores()) as ray, one_thread():
            workers = self.workers or int(ray.cluster_resources().get("CPU", 1))
            sites = RaySites(ray, workload, states, workers)
            try:
                yield sites
            finally:
                sites.close()


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Ray, imported when it is needed, and left as it was found."""
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise InputError("the ray engine needs Ray: install steelyard[ray].") from None
    if ray.is_initialized():
        yield ray
        return
    local = {"num_cpus": cpus, "include_dashboard": False} if address is None else {}
    with undisturbed(ray):
        try:
            check_reachable(address or "local")
            ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **local)
        except (OSError, RuntimeError, ValueError) as error:
            what = f"join a Ray cluster at {address!r}" if address else "start Ray"
            raise InputError(f"cannot {what}: {last_line(error)}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


def check_reachable(address: str) -> None:
    """Fail at once if host:port cannot be reached; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@contextmanager
def undisturbed(ray: Any) -> Iterator[None]:
    """Keep Ray from printing, and undo what it does to the environment and to the handling of SIGTERM."""
    inside, before, handler = ray._private.worker, dict(os.environ), signal.getsignal(signal.SIGTERM)
    listen = getattr(inside, "listen_error_messages", None)  # prints every death, and no setting stops it
    inside.listen_error_messages = lambda *_: None
    try:
        yield
    finally:
        inside.listen_error_messages = listen
        for name in os.environ.keys() | before.keys():
            if name.startswith("RAY_") or name == "PYTHONBREAKPOINT":
                os.environ.pop(name, None)
                if name in before:
                    os.environ[name] = before[name]
        with suppress(ValueError):  # outside the main thread, where Ray does not touch it either
            signal.signal(signal.SIGTERM, handler)


RoundPayload = tuple[int, Begin, Arrays]
"""A running number, what clients need to know in this round, and the model; sent once to every machine."""


class Actor:
    """The worker itself: a process on some machine."""

    def start(self, packed: NDArray[np.uint8]) -> str:
        """Unpack the workload; returns the id of the machine."""
        torch.set_num_threads(1)
        keep_memory()
        self.runner = SiteRunner(torch.load(io.BytesIO(packed.data), weights_only=False))
        self.number = 0
        return str(importlib.import_module("ray").get_runtime_context().get_node_id())

    def answer(self, payload: RoundPayload, job: Job) -> Any:
        """The answer to a job; to a training job also the updates, as rows of matrices."""
        number, begin, model = payload
        if self.number != number:
            self.number, self.buffers = number, LocalBuffers(Message(**tensors(model)))
            self.broadcast = Broadcast(begin.round, self.buffers.down, tensors(begin.offers), begin.rounds)
        with signals_noted(), others_restored():
            if not isinstance(job, Train):
                return do(self.runner, self.buffers, self.broadcast, job)
            if self.buffers.up.count != len(job.clients):
                self.buffers.up = UpdateBuffer(self.buffers.down, len(job.clients))
            here = job._replace(rows=range(len(job.clients)))
            return do(self.runner, self.buffers, self.broadcast, here), arrays(self.buffers.up.matrices)


@dataclass(eq=False)
class RayWorker:
    """The handle of an actor: what is awaited of it, which job it has, and on which machine it is."""

    actor: Any
    awaited: Any
    attempt: Attempt | None = None
    machine: str | None = None


class RaySites(PoolSites):
    """Sites in the actors of a Ray cluster. Jobs go to actors that have started."""

    def __init__(self, ray: Any, workload: Workload, states: PrivateStates, workers: int) -> None:
        super().__init__(workload, states, workers)
        self.ray, self.payloads, self.failed_starts = ray, 0, 0
        workload.divide(workers + 1)
        self.packed = ray.put(pack(workload, ray.cloudpickle))
        self.actor = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Actor)
        self.actors = [self._start() for _ in range(workers)]

    def close(self) -> None:
        for worker in self.actors:
            self.ray.kill(worker.actor)

    def _start(self) -> RayWorker:
        actor = self.actor.remote()
        return RayWorker(actor, actor.start.remote(self.packed))

    def _prepare(self, message: Message, rows: int) -> LocalBuffers:
        if self.buffers is None or self.buffers.up.count < rows:
            self.buffers = LocalBuffers(message, rows)
        self.buffers.write(message)
        return self.buffers

    def _run(
        self,
        jobs: Sequence[Job],
        deadline: Deadline,
        begin: Begin | None = None,
        meanwhile: Callable[[], None] = nothing,
    ) -> Iterator[tuple[Any, Any]]:
        assert self.buffers is not None
        self.payloads += 1
        payload = self.ray.put((self.payloads, begin or Begin(0, 0, {}), arrays(self.buffers.down)))
        deadline = self._await_a_worker(deadline)
        waiting = deque(Attempt(job) for job in jobs)
        meanwhile()
        while any(worker.attempt for worker in self.actors) or (waiting and deadline.left() != 0):
            for worker in self.actors:
                if waiting and worker.awaited is None and deadline.left() != 0:
                    worker.attempt = waiting.popleft()
                    worker.awaited = worker.actor.answer.remote(payload, worker.attempt.job)
            ready = self._ready(deadline.left())
            if not ready:
                yield from self._drop_late_actors(deadline)
            for worker in ready:
                attempt, worker.attempt = worker.attempt, None
                answer = self._receive(worker, attempt, waiting)
                if attempt and answer is not None:
                    yield attempt.job, answer
        yield from ((attempt.job, attempt.late(deadline)) for attempt in waiting)

    def _await_a_worker(self, deadline: Deadline) -> Deadline:
        """Wait until a worker has started; only then does the deadline begin."""
        while all(worker.awaited is not None for worker in self.actors):
            ready = self._ready(START_SECONDS)
            if not ready:
                raise SteelyardError("no Ray worker has started; has the cluster a free CPU?")
            for worker in ready:
                self._receive(worker, None, deque())
            deadline = Deadline(deadline.seconds)
        return deadline

    def _ready(self, seconds: float | None) -> list[RayWorker]:
        """Workers that have answered or died, or none after some seconds."""
        awaited = {worker.awaited: worker for worker in self.actors if worker.awaited is not None}
        done, _ = self.ray.wait(list(awaited), timeout=seconds) if awaited else ([], [])
        return [awaited[each] for each in done]

    def _receive(self, worker: RayWorker, attempt: Attempt | None, waiting: "deque[Attempt]") -> Any:
        """The answer to a job, or None; a worker without a job has started."""
        try:
            answer, worker.awaited = self.ray.get(worker.awaited), None
        except self.ray.exceptions.RayError as error:
            if attempt is None:
                self._check_start(error)
            self._replace_actor(worker)
            return attempt.retry_or_fail(waiting) if attempt else None
        return self._take(attempt.job, answer) if attempt else self._started(worker, answer)

    def _started(self, worker: RayWorker, machine: str) -> None:
        worker.machine, self.failed_starts = machine, 0
        machines = [each.machine for each in self.actors if each.machine]
        workers, nodes = len(machines), len(set(machines))
        self.about = f"ray, {workers} worker{'s' * (workers > 1)} on {nodes} node{'s' * (nodes > 1)}"

    def _check_start(self, error: Exception) -> None:
        """One worker that dies while it starts may be chance; if all do, the run cannot go on."""
        self.failed_starts += 1
        killed = isinstance(error, self.ray.exceptions.RayActorError)
        if not killed or self.failed_starts >= ATTEMPTS * self.count:
            raise SteelyardError(f"a Ray worker cannot start: {last_line(error)}")

    def _replace_actor(self, old: RayWorker) -> None:
        log.warning("a Ray worker died or was late; a new one takes its place")
        self.ray.kill(old.actor)
        self.actors[self.actors.index(old)] = self._start()

    def _drop_late_actors(self, deadline: Deadline) -> Iterator[tuple[Any, Any]]:
        """Replace workers that are busy at the deadline; their jobs have failed."""
        for worker in [worker for worker in self.actors if worker.attempt]:
            assert worker.attempt is not None
            self._replace_actor(worker)
            yield worker.attempt.job, worker.attempt.late(deadline)

    def _take(self, job: Job, answer: Any) -> Any:
        """An answer in the form that a worker of the pool gives; updates are copied into their rows."""
        if isinstance(job, OnCommon) and isinstance(answer, tuple):  # Ray's own memory is read-only
            return answer[0].copy(), answer[1]
        if isinstance(job, Evaluate | OnCommon):
            return answer
        assert self.buffers is not None
        for name, rows in answer[1].items():
            getattr(self.buffers.up.matrices, name).numpy()[list(job.rows)] = rows
        return answer[0]


def pack(workload: Workload, pickle: Any) -> NDArray[np.uint8]:
    """A workload as bytes. Tensors that are parts of one table bring it once; pickle alone, once for each."""
    buffer = io.BytesIO()
    try:
        torch.save(workload, buffer, pickle_module=pickle, pickle_protocol=5)
    except Exception as error:  # whatever a user's class does when it is pickled
        raise InputError(f"the ray engine cannot send these clients to its workers: {error}.") from error
    return np.frombuffer(buffer.getbuffer(), np.uint8)


def arrays(message: Message) -> Arrays:
    """The parts of a message by name, in a form that Ray does not copy."""
    return {name: value.numpy() for name, value in message._asdict().items() if value is not None}


def last_line(error: Exception) -> str:
    """What an error comes to, without the traceback from another machine."""
    return str(error).strip().splitlines()[-1]
