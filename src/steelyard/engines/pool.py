"""Worker processes on one machine: a round moves only client ids.

The workers inherit the data and share the model's vector and the matrix of updates with the server, so that a
client's update is written straight into its row. A worker that dies is replaced and its client is run again.
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

from steelyard.engines.base import Engine, Session, Workload, one_thread
from steelyard.engines.worker import Board, Job, Predict, Train, arrays, tensors, work
from steelyard.errors import InputError, SteelyardError
from steelyard.evaluation.predict import BATCH
from steelyard.types import Broadcast, ClientId, Failure, Message, Reply, State, Trained

ATTEMPTS = 3  # how often a job is tried whose worker dies
CHUNK_SECONDS = 0.005  # of work that a worker gets at a time: short jobs should not wait for the server


@dataclass(frozen=True)
class Pool(Engine):
    """Worker processes of one thread each: as many as there are cores, unless `workers` says otherwise."""

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers must be at least 1, not {self.workers}.")

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        session = PoolSession(workload, self.workers or cores())
        with one_thread():
            try:
                yield session
            finally:
                session.close()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Worker:
    """A process, the server's end of the pipe to it, and the places of the jobs that it has."""

    def __init__(self, workload: Workload, board: Board) -> None:
        # A forked worker starts at once and inherits any data and model; elsewhere they must be picklable.
        fork = "fork" in multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(workload, board, theirs, os.getpid()), daemon=True)
        with warnings.catch_warnings():  # a progress bar's thread is no danger to a child that never prints
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.places: list[int] = []

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


class PoolSession:
    """The server's side: hands jobs to idle workers and replaces those that die."""

    def __init__(self, workload: Workload, workers: int, rows: int = 1) -> None:
        """`rows` is how many clients a round is expected to have; more are taken after a new start."""
        self.workload, self.count, self.rows = workload, workers, rows
        self.workers: list[Worker] = []
        self.board: Board | None = None
        self.chunk = 1
        self.about = f"pool of {workers}"

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        board = self._prepare(broadcast.message, len(clients))
        offers = arrays(broadcast.offers)
        # The largest first, so that nobody waits at the end for one that started late.
        order = sorted(clients, key=lambda client: -len(self.workload.clients[client].train))
        jobs = [
            Train(client, row, broadcast.round, offers, arrays(states.get(client, {})))
            for row, client in enumerate(order)
        ]
        start = time.perf_counter()
        for place, answer in self._run(jobs, self.chunk):
            if isinstance(answer, Failure):
                yield answer
            else:
                count, metrics, state = answer
                yield Trained(Reply(order[place], board.row(place), count, metrics), tensors(state))
        share = -(-len(jobs) // self.count)
        seconds = (time.perf_counter() - start) / max(share, 1)
        self.chunk = max(1, min(share, int(CHUNK_SECONDS / seconds)))

    def predict(self, message: Message, client: ClientId | None) -> Tensor:
        self._prepare(message, 0)
        size = len(self.workload.test_data(client))
        share = BATCH * -(-size // (BATCH * self.count))  # whole batches, so that the bits do not change
        jobs = [Predict(client, slice(start, start + share)) for start in range(0, size, share)]
        parts = dict(self._run(jobs, 1))
        for answer in parts.values():
            if isinstance(answer, Failure):
                raise SteelyardError(f"evaluation on {answer.client} failed: {answer.reason}")
        return torch.cat([torch.from_numpy(parts[place]) for place in range(len(jobs))])

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def _prepare(self, message: Message, rows: int) -> Board:
        """A board with room for this round and the model on it, and workers that see it."""
        if self.board is None or self.board.rows < rows:
            self.close()
            self.rows = max(self.rows, rows)
            self.board = Board(self.rows, message)
            self.workers = [Worker(self.workload, self.board) for _ in range(self.count)]
        self.board.write(message)
        return self.board

    def _run(self, jobs: Sequence[Job], chunk: int) -> Iterator[tuple[int, Any]]:
        """The place of each job and its answer, in the order in which they are done."""
        waiting, deaths = deque(range(len(jobs))), [0] * len(jobs)
        for worker in self.workers:
            self._hand(worker, jobs, waiting, chunk)
        while busy := [worker for worker in self.workers if worker.places]:
            ready = wait([worker.pipe for worker in busy])
            for worker in [each for each in busy if each.pipe in ready]:
                places = worker.places
                try:
                    answers = worker.pipe.recv()
                except (EOFError, OSError):
                    worker, chunk = self._replace(worker), 1  # from now on the one to blame is alone
                    answers = _bury(places, jobs, waiting, deaths)
                self._hand(worker, jobs, waiting, chunk)
                yield from zip(places, answers, strict=False)

    def _hand(self, worker: Worker, jobs: Sequence[Job], waiting: deque[int], chunk: int) -> None:
        """Give an idle worker the next jobs, if there are any."""
        worker.places = [waiting.popleft() for _ in range(min(chunk, len(waiting)))]
        if worker.places:
            with suppress(OSError):  # a dead worker is noticed when its answer is awaited
                worker.pipe.send([jobs[place] for place in worker.places])

    def _replace(self, dead: Worker) -> Worker:
        assert self.board is not None
        dead.stop()
        worker = Worker(self.workload, self.board)
        self.workers[self.workers.index(dead)] = worker
        return worker


def _bury(places: list[int], jobs: Sequence[Job], waiting: deque[int], deaths: list[int]) -> list[Failure]:
    """The jobs of a dead worker wait again, unless one of them, alone, has killed too many."""
    if len(places) == 1:
        deaths[places[0]] += 1
        if deaths[places[0]] == ATTEMPTS:
            return [Failure(str(jobs[places[0]].client), "training", f"its worker died {ATTEMPTS} times")]
    waiting.extendleft(reversed(places))
    return []
