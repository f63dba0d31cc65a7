"""Workers on the machines of a Ray cluster: a round moves client ids, the model down and the updates up.

Every worker gets a copy of the workload when it starts; steelyard and the modules that a workload comes from
must be there on every machine. A worker that dies is replaced and its clients are run again.
"""

import importlib
import io
import os
import signal
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from steelyard.engines.base import Engine, Rows, Session, Workload, one_thread
from steelyard.engines.pool import ATTEMPTS, Attempt, PoolSession, check_workers, cores
from steelyard.engines.serial import SerialSession
from steelyard.engines.worker import Arrays, Begin, Board, Job, Predict, keep_memory, predict, tensors, train
from steelyard.errors import InputError, SteelyardError
from steelyard.types import Broadcast, Failure, Message

PATIENCE = 600.0  # seconds to wait for a first worker: a cluster may have to start a machine for it


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
    def open(self, workload: Workload) -> Iterator[Session]:
        with connected(self.address, self.workers or cores()) as ray, one_thread():
            session = RaySession(ray, workload, self.workers or int(ray.cluster_resources().get("CPU", 1)))
            try:
                yield session
            finally:
                session.close()


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
    """Fail at once where nobody listens at host:port; Ray itself tries for minutes."""
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


class Desk(Board):
    """What is on the pool's board, in a process's own memory."""

    def __init__(self, down: Message, rows: int = 0) -> None:
        self.down, self.up = down, Rows(down, rows)


Post = tuple[int, Begin, Arrays]
"""A number of its own, what a round's clients need to know, and the model. It goes once to every machine."""


class Actor:
    """A worker's far end: a process on some machine."""

    def start(self, packed: NDArray[np.uint8]) -> str:
        """Unpack the workload; the answer is which machine this is."""
        torch.set_num_threads(1)
        keep_memory()
        self.session = SerialSession(torch.load(io.BytesIO(packed.data), weights_only=False))
        self.number = 0
        return str(importlib.import_module("ray").get_runtime_context().get_node_id())

    def answer(self, post: Post, job: Job) -> Any:
        """Predictions; or what each client sends, and beside it the updates as rows of a matrix."""
        number, begin, model = post
        if self.number != number:
            self.number, self.desk = number, Desk(Message(**tensors(model)))
            self.broadcast = Broadcast(begin.round, self.desk.down, tensors(begin.offers), begin.rounds)
        if isinstance(job, Predict):
            return predict(self.session, self.desk, job)
        if self.desk.up.count != len(job.clients):
            self.desk.up = Rows(self.desk.down, len(job.clients))
        here = job._replace(rows=range(len(job.clients)))
        return train(self.session, self.desk, self.broadcast, here), arrays(self.desk.up.matrices)


@dataclass(eq=False)
class Worker:
    """A worker's near end: what is awaited of it, which job it answers, and where it is."""

    actor: Any
    awaited: Any
    attempt: Attempt | None = None
    machine: str | None = None


class RaySession(PoolSession):
    """A pool of actors. Those that have started get work, so that no client waits for a machine."""

    def __init__(self, ray: Any, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        self.ray, self.posts, self.stillborn = ray, 0, 0
        self.packed = ray.put(pack(workload, ray.cloudpickle))
        self.actor = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Actor)
        self.crew = [self._hire() for _ in range(workers)]

    def close(self) -> None:
        for worker in self.crew:
            self.ray.kill(worker.actor)

    def _hire(self) -> Worker:
        actor = self.actor.remote()
        return Worker(actor, actor.start.remote(self.packed))

    def _prepare(self, message: Message, rows: int) -> Board:
        if self.board is None or self.board.up.count < rows:
            self.board = Desk(message, rows)
        self.board.down = message
        return self.board

    def _run(self, jobs: Sequence[Job], begin: Begin | None = None) -> Iterator[tuple[Any, Any]]:
        assert self.board is not None
        self.posts += 1
        post = self.ray.put((self.posts, begin or Begin(0, 0, {}), arrays(self.board.down)))
        waiting = deque(Attempt(job) for job in jobs)
        while waiting or any(worker.attempt for worker in self.crew):
            for worker in self.crew:
                if waiting and worker.awaited is None:
                    worker.attempt = waiting.popleft()
                    worker.awaited = worker.actor.answer.remote(post, worker.attempt.job)
            for worker in self._heard():
                attempt, worker.attempt = worker.attempt, None
                try:
                    answer, worker.awaited = self.ray.get(worker.awaited), None
                except self.ray.exceptions.RayError as error:
                    self._bury(worker, None if attempt else error)
                    answer = attempt.mourn(waiting) if attempt else None
                else:
                    answer = self._take(attempt.job, answer) if attempt else self._welcome(worker, answer)
                if attempt and answer is not None:
                    yield attempt.job, answer

    def _heard(self) -> list[Worker]:
        """Workers that have answered or died."""
        awaited = {worker.awaited: worker for worker in self.crew if worker.awaited is not None}
        working = any(worker.attempt for worker in self.crew)
        done, _ = self.ray.wait(list(awaited), timeout=None if working else PATIENCE)
        if not done:
            raise SteelyardError("no Ray worker has started; has the cluster a free CPU?")
        return [awaited[each] for each in done]

    def _welcome(self, worker: Worker, machine: str) -> Any:
        worker.machine, self.stillborn = machine, 0
        known = [each.machine for each in self.crew if each.machine]
        workers, nodes = len(known), len(set(known))
        self.about = f"ray, {workers} worker{'s' * (workers > 1)} on {nodes} node{'s' * (nodes > 1)}"

    def _bury(self, dead: Worker, at_birth: Exception | None) -> None:
        """Replace a worker. That it died before its first job may be chance, unless they all do."""
        if at_birth:
            self.stillborn += 1
            killed = isinstance(at_birth, self.ray.exceptions.RayActorError)
            if not killed or self.stillborn >= ATTEMPTS * self.count:
                raise SteelyardError(f"a Ray worker cannot start: {last_line(at_birth)}")
        self.ray.kill(dead.actor)
        self.crew[self.crew.index(dead)] = self._hire()

    def _take(self, job: Job, answer: Any) -> Any:
        """An answer as a worker of the pool would give it; the updates are written into their rows."""
        if isinstance(job, Predict):
            return answer if isinstance(answer, Failure) else answer.copy()  # Ray's own memory is read-only
        assert self.board is not None
        for name, rows in answer[1].items():
            getattr(self.board.up.matrices, name).numpy()[list(job.rows)] = rows
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
