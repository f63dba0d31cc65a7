"""A node of a Ray cluster: an actor that holds data and model once, and a pool of worker processes.

The node gets a batch of jobs at a time. Its workers write updates into shared memory; as they are done, jobs
go up in blocks of some megabytes, while the workers train on.
"""

import io
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.client.private_state import MemoryStates
from steelyard.engines.base import Deadline
from steelyard.engines.pool_sites import PoolSites
from steelyard.engines.runner import SiteRunner
from steelyard.engines.worker import Arrays, Begin, Evaluate, Job, OnCommon, Train
from steelyard.engines.workload import Workload
from steelyard.types import Failure, Message

BLOCK_BYTES = 16 << 20  # of updates that go up at a time


class Batch(NamedTuple):
    """Jobs for a node."""

    jobs: Sequence[Job]
    kind: type[SiteRunner]
    """How the node's workers train."""
    room: int
    """Rows that the node should have for updates, so that its workers need not be started anew for more."""
    seconds: float | None
    """That the round has, and `left` is what is left of them."""
    left: float | None

    def deadline(self) -> Deadline:
        """The deadline by the clock of this machine."""
        deadline = Deadline(self.left)
        deadline.seconds = self.seconds
        return deadline


class Done(NamedTuple):
    """A job that is done, without what went down with it."""

    job: Job
    answer: Any
    """The answer of the worker, see `worker.do`; predictions are always in it."""
    updates: Arrays
    """The parts of the updates, [clients, ...] each."""


class Node:
    """The actor of a node."""

    def start(self, packed: NDArray[np.uint8], workers: int) -> None:
        """Unpack the workload; the workers start with the first batch."""
        torch.set_num_threads(1)
        self.workload: Workload = torch.load(io.BytesIO(packed.data), weights_only=False)
        self.workers = workers
        self.pool: NodePool | None = None

    def answer(self, model: Arrays, begin: Begin | None, batch: Batch) -> Iterator[list[Done]]:
        """Blocks of jobs that are done."""
        if self.pool is not None and self.pool.kind is not batch.kind:
            self.pool.close()
            self.pool = None
        if self.pool is None:
            self.pool = NodePool(self.workload, MemoryStates(), self.workers, batch.kind)
        yield from self.pool.blocks(Message(**views(model)), begin, batch)


class NodePool(PoolSites):
    """The pool of worker processes of a node."""

    def blocks(self, model: Message, begin: Begin | None, batch: Batch) -> Iterator[list[Done]]:
        """Jobs that are done, in blocks; the memory of a block is used again after the batch."""
        rows = [row for job in batch.jobs if isinstance(job, Train) for row in job.rows]
        self._prepare(model, max(batch.room, len(rows)))
        block: list[Done] = []
        size = 0
        for job, answer in self._run(with_own_rows(batch.jobs), batch.deadline(), begin):
            done = self._done(job, answer, rows)
            block.append(done)
            size += sum(each.nbytes for each in done.updates.values())
            if size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
        if block:
            yield block

    def _done(self, job: Job, answer: Any, rows: Sequence[int]) -> Done:
        """A job with the server's rows."""
        assert self.buffers is not None
        if isinstance(job, OnCommon):
            if isinstance(answer, tuple) and answer[0] is None:
                answer = (self.buffers.predicted(job.rows).numpy(), answer[1])
            return Done(job, answer, {})
        if isinstance(job, Evaluate):
            return Done(job._replace(states=()), answer, {})
        updates: Arrays = {}
        if not all(isinstance(each, Failure) for each in answer):
            own = selection(job.rows)
            updates = {name: rows[own] for name, rows in arrays(self.buffers.up.matrices).items()}
        return Done(job._replace(states=(), rows=[rows[row] for row in job.rows]), answer, updates)


def with_own_rows(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with the rows of the node's own buffer, in order."""
    found: list[Job] = []
    first = 0
    for job in jobs:
        if isinstance(job, Train):
            job, first = job._replace(rows=range(first, first + len(job.clients))), first + len(job.clients)
        found.append(job)
    return found


def selection(rows: Sequence[int]) -> slice | list[int]:
    """An index of rows; a slice, which copies nothing, where they are consecutive."""
    first, stop = rows[0], rows[0] + len(rows)
    return slice(first, stop) if [*rows] == [*range(first, stop)] else [*rows]


def arrays(message: Message) -> Arrays:
    """The parts of a message by name, in a form that Ray does not pickle."""
    return {name: value.numpy() for name, value in message._asdict().items() if value is not None}


def views(values: Arrays) -> dict[str, Tensor]:
    """Tensors that are only read, in Ray's memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return {name: torch.from_numpy(value) for name, value in values.items()}
