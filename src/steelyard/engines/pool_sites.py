"""Worker processes on one machine: a round moves only client ids.

Workers inherit the data and share the model's vector and the matrix of updates with the parent process: an
update is written straight into its row. A worker that dies is replaced and its clients are run again. A
worker that is still busy at the deadline is replaced and its clients have failed.
"""

import logging
import multiprocessing
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

import torch

from steelyard.client.evaluation import BATCH, Predicted
from steelyard.client.learner import Trained
from steelyard.client.private_state import PrivateStates
from steelyard.data.examples import StreamExamples
from steelyard.devices import can_fork
from steelyard.engines.attempts import Attempt, JointAttempt
from steelyard.engines.base import Deadline, Scored, SimulatedSites, nothing, readable
from steelyard.engines.buffers import LocalBuffers, SharedBuffers
from steelyard.engines.common_test import ScoreRequest
from steelyard.engines.runner import SiteRunner
from steelyard.engines.worker import (
    Begin,
    Evaluate,
    Job,
    OnCommon,
    Train,
    arrays,
    tensors,
    work,
)
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Scores
from steelyard.types import Broadcast, ClientId, Failure, Message, Reply

log = logging.getLogger("steelyard.engines")

CHUNK_SECONDS = 0.005  # of work in one job, so that short jobs do not wait for the parent process
MAX_SCORED = 16  # clients in one scoring job


class Worker:
    """A process, the parent's end of the pipe to it, and the job that it has."""

    def __init__(self, kind: type[SiteRunner], workload: Workload, buffers: LocalBuffers) -> None:
        # A forked worker starts at once and inherits any data and model; elsewhere they must be picklable.
        context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=work, args=(kind, workload, buffers, theirs, os.getpid()), daemon=True
        )
        with warnings.catch_warnings():  # a progress bar's thread is no danger to a child that never prints
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.attempt: Attempt | None = None
        self.begun: Begin | None = None

    def give(self, attempt: Attempt, begin: Begin | None) -> None:
        """Send a job, and before the first job of a round what its clients need to know."""
        self.attempt = attempt
        news = begin if begin is not self.begun else None
        self.begun = begin
        with suppress(OSError):  # a dead worker is noticed when its answer is read
            self.pipe.send((news, attempt.job))

    def stop(self) -> None:
        self.pipe.close()
        self.process.kill()  # it has nothing to clean up, and a stopped or hung one ignores a polite signal
        self.process.join()


class PoolSites(SimulatedSites):
    """Sites in worker processes: jobs go to idle workers, and workers that die or hang are replaced."""

    def __init__(
        self,
        workload: Workload,
        states: PrivateStates,
        workers: int,
        kind: type[SiteRunner] = SiteRunner,
        rows: int = 1,
    ) -> None:
        """`rows` is the expected number of clients in a round; for more, all workers are started anew."""
        super().__init__(workload, states)
        self.count, self.kind, self.rows = workers, kind, rows
        self.workers: list[Worker] = []
        self.buffers: LocalBuffers | None = None
        self.chunk = 1
        pool = f"pool of {workers}{workload.in_words}"
        self.about = pool if kind is SiteRunner else f"{kind.name}, {pool}"

    def work(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        requests: Sequence[ScoreRequest],
        deadline: Deadline,
        meanwhile: Callable[[], None] = nothing,
    ) -> Iterator[Trained | Scored | Failure]:
        """Jobs carry private states as they are before training, so that scoring and training may overlap."""
        begin = Begin(broadcast.round, broadcast.rounds, arrays(broadcast.offers))
        training = self._train_jobs(train, deadline)
        jobs: list[Job] = self._evaluate_jobs(requests, deadline)
        if broadcast.evaluated is not None and jobs:  # another model than the one to train from: score first
            self._prepare(broadcast.evaluated, len(train))
            yield from self._outcomes(jobs, deadline, begin)
            jobs = []
        if not training and not jobs:
            meanwhile()
            return
        self._prepare(broadcast.message, len(train))
        start = time.perf_counter()
        yield from self._outcomes([*jobs, *training], deadline, begin, meanwhile)
        self._adapt_chunk(len(train), time.perf_counter() - start)

    def _train_jobs(self, clients: Sequence[ClientId], deadline: Deadline) -> list[Job]:
        row = {client: number for number, client in enumerate(clients)}
        chunk = self.chunk if deadline.end is None else 1  # a client that hangs takes its group with it
        return [
            Train(group, [row[each] for each in group], [arrays(self.states.get(each)) for each in group])
            for group in (self.kind.groups(self.workload, clients, chunk) if clients else ())
        ]

    def _evaluate_jobs(self, requests: Sequence[ScoreRequest], deadline: Deadline) -> list[Job]:
        jobs: list[Job] = []
        for clients, own_test, detail in requests:
            size = 1 if deadline.end is not None else min(MAX_SCORED, -(-len(clients) // (4 * self.count)))
            for start in range(0, len(clients), size):
                group = clients[start : start + size]
                states = [arrays(self.states.get(client)) for client in group]
                jobs.append(Evaluate(group, states, own_test, detail))
        return jobs

    def _outcomes(
        self, jobs: Sequence[Job], deadline: Deadline, begin: Begin, meanwhile: Callable[[], None] = nothing
    ) -> Iterator[Trained | Scored | Failure]:
        """What comes of jobs, client by client."""
        assert self.buffers is not None
        for job, answers in self._run(jobs, deadline, begin, meanwhile):
            for place, (client, answer) in enumerate(zip(job.clients, answers, strict=True)):
                if isinstance(answer, Failure):
                    yield answer
                elif isinstance(job, Evaluate):
                    yield Scored(client, answer)
                else:
                    count, metrics, state = answer
                    update = self.buffers.up[job.rows[place]]
                    yield Trained(Reply(client, update, count, metrics), tensors(state))

    def _adapt_chunk(self, clients: int, seconds: float) -> None:
        """Give a worker more clients at a time if they are quick."""
        share = -(-clients // self.count)
        self.chunk = max(1, min(share, int(CHUNK_SECONDS * max(share, 1) / seconds)))

    def predict_common(self, model: Message) -> Predicted:
        jobs = [OnCommon(rows) for rows in self._shares()]
        parts = self._on_common(model, jobs)
        assert self.buffers is not None
        outputs = [
            torch.from_numpy(part) if part is not None else self.buffers.predicted(job.rows)
            for job, (part, _) in zip(jobs, parts, strict=True)
        ]
        return Predicted(torch.cat(outputs), [each for _, sums in parts for each in sums])

    def score_common(self, model: Message, temperature: float = 1.0) -> list[Scores]:
        parts = self._on_common(model, [OnCommon(rows, temperature) for rows in self._shares()])
        return [scores for part in parts for scores in part]

    def _shares(self) -> list[slice]:
        """Rows of the common test set for each worker: whole batches, so that the bits do not change."""
        test = self.workload.test
        assert test is not None
        if isinstance(test, StreamExamples):
            return [slice(0, None)]
        share = BATCH * -(-len(test) // (BATCH * self.count))
        return [slice(start, start + share) for start in range(0, len(test), share)]

    def _on_common(self, model: Message, jobs: Sequence[OnCommon]) -> list[Any]:
        """What comes of jobs on the common test set, in the order of its rows."""
        self._prepare(model, 0)
        parts = {job.rows.start: readable(answer) for job, answer in self._run(jobs, Deadline(None))}
        return [parts[start] for start in sorted(parts)]

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def _prepare(self, message: Message, rows: int) -> LocalBuffers:
        """Buffers with room for this round and the model in them, and workers that see them."""
        if self.buffers is None or self.buffers.up.count < rows:
            self.close()
            self.rows = max(self.rows, rows)
            test = self.workload.common_test  # converted before the workers start, so that they inherit it
            examples = 0 if test is None or isinstance(test, StreamExamples) else len(test)
            outputs = examples, self.workload.learner.task.outputs
            self.buffers = SharedBuffers(message, self.rows, outputs)
            self.workload.divide(self.count + 1)
            self.workers = [self._worker() for _ in range(self.count)]
        self.buffers.write(message)
        return self.buffers

    def _worker(self) -> Worker:
        assert self.buffers is not None
        return Worker(self.kind, self.workload, self.buffers)

    def _run(
        self,
        jobs: Sequence[Job],
        deadline: Deadline,
        begin: Begin | None = None,
        meanwhile: Callable[[], None] = nothing,
    ) -> Iterator[tuple[Any, Any]]:
        """Each job and its answer, as they are done; jobs that miss the deadline have failed."""
        waiting = deque(self._attempt(job, deadline) for job in jobs)
        for worker in self.workers[: len(waiting)] if deadline.left() != 0 else ():
            worker.give(waiting.popleft(), begin)
        meanwhile()
        while busy := {worker.pipe: worker for worker in self.workers if worker.attempt}:
            ready = wait(list(busy), deadline.left())
            if not ready:
                yield from self._drop_late(list(busy.values()), deadline)
            for pipe in ready:
                worker = busy[pipe]
                attempt, worker.attempt = worker.attempt, None
                assert attempt is not None
                try:
                    answer = attempt.answered(worker.pipe.recv(), waiting)
                except (EOFError, OSError):
                    worker, answer = self._replace(worker), attempt.retry_or_fail(waiting)
                if waiting and deadline.left() != 0:
                    worker.give(waiting.popleft(), begin)
                if answer is not None:
                    yield attempt.job, answer
        yield from ((attempt.job, attempt.late(deadline)) for attempt in waiting)

    def _attempt(self, job: Job, deadline: Deadline) -> Attempt:
        if self.kind.trains_together and isinstance(job, Train):
            return JointAttempt(job, may_search=deadline.end is None)
        return Attempt(job)

    def _drop_late(self, workers: Sequence[Worker], deadline: Deadline) -> Iterator[tuple[Any, Any]]:
        """Replace workers that are busy at the deadline; their jobs have failed."""
        for worker in workers:
            assert worker.attempt is not None
            self._replace(worker)
            yield worker.attempt.job, worker.attempt.late(deadline)

    def _replace(self, old: Worker) -> Worker:
        old.stop()
        log.warning("worker %s died or was late; a new one takes its place", old.process.pid)
        self.workers[self.workers.index(old)] = worker = self._worker()
        return worker
