"""Worker processes on one machine: a round moves only client ids.

The workers inherit the data and share the model's vector and the matrix of updates with the server: an update
is written straight into its row. A worker that dies is replaced and its clients are run again.
"""

import multiprocessing
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import torch
from torch import Tensor

from steelyard.client.predict import BATCH
from steelyard.engines.base import Engine, Look, Session, Workload, one_thread
from steelyard.engines.serial import SerialSession
from steelyard.engines.worker import Begin, Board, Job, Predict, Train, arrays, tensors, work
from steelyard.errors import InputError, SteelyardError
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message, Reply, State, Trained

ATTEMPTS = 3  # how often a job is tried whose worker dies
SHARE = "STEELYARD_CORES"  # in the environment: how many cores a process may use, of those there are
CHUNK_SECONDS = 0.005  # of work that a worker gets at a time: short jobs should not wait for the server


@dataclass(frozen=True)
class Pool(Engine):
    """Worker processes of one thread each: as many as there are cores, unless `workers` says otherwise."""

    workers: int | None = None

    def __post_init__(self) -> None:
        check_workers(self.workers)

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        with open_pool(workload, self.workers, SerialSession) as session:
            yield session


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}.")


@contextmanager
def open_pool(workload: Workload, workers: int | None, local: type[SerialSession]) -> Iterator[Session]:
    """A pool whose workers each run a session of the given kind."""
    session = PoolSession(workload, workers or cores(), local)
    with one_thread():
        try:
            yield session
        finally:
            session.close()


def cores() -> int:
    """The cores that this process may use: its share, where several such processes work beside each other."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, int(os.environ.get(SHARE, available)))


class Worker:
    """A process, the server's end of the pipe to it, and the job that it has."""

    def __init__(self, local: type[SerialSession], workload: Workload, board: Board) -> None:
        # A forked worker starts at once and inherits any data and model; elsewhere they must be picklable.
        fork = "fork" in multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=work, args=(local, workload, board, theirs, os.getpid()), daemon=True
        )
        with warnings.catch_warnings():  # a progress bar's thread is no danger to a child that never prints
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.attempt: Attempt | None = None
        self.begun: Begin | None = None

    def give(self, attempt: "Attempt", begin: Begin | None) -> None:
        """Hand over a job, and before the first of a round what its clients need to know."""
        self.attempt = attempt
        news = begin if begin is not self.begun else None
        self.begun = begin
        with suppress(OSError):  # a dead worker is noticed when its answer is awaited
            self.pipe.send((news, attempt.job))

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


class PoolSession:
    """The server's side: hands jobs to idle workers and replaces those that die."""

    def __init__(
        self, workload: Workload, workers: int, local: type[SerialSession] = SerialSession, rows: int = 1
    ) -> None:
        """`rows` is how many clients a round is expected to have; more are taken after a new start."""
        self.workload, self.count, self.local, self.rows = workload, workers, local, rows
        self.workers: list[Worker] = []
        self.board: Board | None = None
        self.chunk = 1
        self.about = f"pool of {workers}" if local is SerialSession else f"{local.about}, pool of {workers}"

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        board = self._prepare(broadcast.message, len(clients))
        row = {client: number for number, client in enumerate(clients)}
        jobs: list[Job] = [
            Train(group, [row[each] for each in group], [arrays(states.get(each, EMPTY)) for each in group])
            for group in self.local.groups(self.workload, clients, self.chunk)
        ]
        start = time.perf_counter()
        for job, answers in self._run(
            jobs, Begin(broadcast.round, broadcast.rounds, arrays(broadcast.offers))
        ):
            for client, answer in zip(job.clients, answers, strict=True):
                if isinstance(answer, Failure):
                    yield answer
                else:
                    count, metrics, state = answer
                    yield Trained(Reply(client, board.up[row[client]], count, metrics), tensors(state))
        share = -(-len(clients) // self.count)
        seconds = (time.perf_counter() - start) / max(share, 1)
        self.chunk = max(1, min(share, int(CHUNK_SECONDS / seconds)))

    def predict(self, message: Message, look: Look) -> Tensor:
        self._prepare(message, 0)
        size = len(self.workload.test_data(look.client, look.part))
        share = BATCH * -(-size // (BATCH * self.count))  # whole batches, so that the bits do not change
        look, state = look._replace(state={}), arrays(look.state)
        jobs = [
            Predict(look._replace(rows=slice(start, start + share)), state) for start in range(0, size, share)
        ]
        parts = {}
        for job, answer in self._run(jobs):
            if isinstance(answer, Failure):
                raise SteelyardError(f"evaluation on {answer.client} failed: {answer.reason}")
            parts[job.look.rows.start] = torch.from_numpy(answer)
        return torch.cat([parts[start] for start in sorted(parts)])

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def _prepare(self, message: Message, rows: int) -> Board:
        """A board with room for this round and the model on it, and workers that see it."""
        if self.board is None or self.board.up.count < rows:
            self.close()
            self.rows = max(self.rows, rows)
            self.board = Board(message, self.rows)
            _ = self.workload.common_test  # converted before the workers are born, who inherit it
            self.workers = [self._worker() for _ in range(self.count)]
        self.board.write(message)
        return self.board

    def _worker(self) -> Worker:
        assert self.board is not None
        return Worker(self.local, self.workload, self.board)

    def _run(self, jobs: Sequence[Job], begin: Begin | None = None) -> Iterator[tuple[Any, Any]]:
        """Each job and its answer, as they are done."""
        waiting = deque(Attempt(job) for job in jobs)
        for worker in self.workers[: len(waiting)]:
            worker.give(waiting.popleft(), begin)
        while busy := {worker.pipe: worker for worker in self.workers if worker.attempt}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]
                attempt, worker.attempt = worker.attempt, None
                assert attempt is not None
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    worker, answer = self._replace(worker), attempt.mourn(waiting)
                if waiting:
                    worker.give(waiting.popleft(), begin)
                if answer is not None:
                    yield attempt.job, answer

    def _replace(self, dead: Worker) -> Worker:
        dead.stop()
        self.workers[self.workers.index(dead)] = worker = self._worker()
        return worker


@dataclass
class Attempt:
    """A job, and how many workers have died of it."""

    job: Job
    deaths: int = 0

    def mourn(self, waiting: "deque[Attempt]") -> Any:
        """After a death, wait again; after too many, alone if there were several clients, or else give up."""
        self.deaths += 1
        if self.deaths < ATTEMPTS:
            waiting.appendleft(self)
        elif isinstance(self.job, Train) and len(self.job.clients) > 1:
            waiting.extendleft(map(Attempt, self.job.singles()))
        elif isinstance(self.job, Train):
            return [Failure(self.job.clients[0], "training", f"its worker died {ATTEMPTS} times")]
        else:
            return Failure(
                self.job.look.client or "the test set", "evaluating", f"its worker died {ATTEMPTS} times"
            )
        return None
