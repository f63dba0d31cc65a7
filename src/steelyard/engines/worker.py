"""A worker process of the pool: the jobs it gets and the answers it sends."""

import ctypes
import gc
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.client.interruptions import signals_noted
from steelyard.client.learner import Trained
from steelyard.engines.buffers import LocalBuffers
from steelyard.engines.orphans import end_with_parent
from steelyard.engines.runner import SiteRunner
from steelyard.engines.workload import Workload
from steelyard.seeds import others_restored
from steelyard.types import Broadcast, ClientId, Failure

Arrays = dict[str, NDArray[Any]]


class Begin(NamedTuple):
    """The start of a round; the model is in the shared buffers."""

    round: int
    rounds: int
    offers: Arrays


class Train(NamedTuple):
    """Train some clients; their updates go into rows of the shared buffers."""

    clients: Sequence[ClientId]
    rows: Sequence[int]
    states: Sequence[Arrays]

    def singles(self) -> "list[Train]":
        """The same work, one client at a time."""
        return [
            Train([client], [row], [state])
            for client, row, state in zip(self.clients, self.rows, self.states, strict=True)
        ]

    def failed(self, stage: str, reason: str) -> list[Failure]:
        return [Failure(client, stage, reason) for client in self.clients]


class Evaluate(NamedTuple):
    """Score the model at some clients."""

    clients: Sequence[ClientId]
    states: Sequence[Arrays]
    own_test: bool
    detail: bool

    def singles(self) -> "list[Evaluate]":
        return [
            self._replace(clients=[client], states=[state])
            for client, state in zip(self.clients, self.states, strict=True)
        ]

    def failed(self, stage: str, reason: str) -> list[Failure]:
        return [Failure(client, stage, reason) for client in self.clients]


class OnCommon(NamedTuple):
    """Predict some rows of the common test set or, with a temperature, score their batches."""

    rows: slice
    temperature: float | None = None

    def singles(self) -> "list[OnCommon]":
        return [self]

    def failed(self, stage: str, reason: str) -> Failure:
        return Failure("the common test set", stage, reason)


Job = Train | Evaluate | OnCommon
STAGES = {Train: "training", Evaluate: "evaluating", OnCommon: "evaluating"}


def work(
    kind: type[SiteRunner],
    workload: Workload,
    buffers: LocalBuffers,
    pipe: "Connection[Any, Any]",
    parent: int,
) -> None:
    """Answer jobs until the parent process closes the pipe or is gone."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # A process that a client's code forks must not answer, nor keep the pipe open when this one dies,
    # nor write into the updates of a later round: until it ends, it goes on with what this one was doing.
    os.register_at_fork(after_in_child=pipe.close)
    os.register_at_fork(after_in_child=buffers.make_private)
    torch.set_num_threads(1)
    keep_memory()
    runner = kind(workload)
    gc.freeze()  # objects made so far live as long as the process: the collector can skip them
    broadcast = Broadcast(0, buffers.down)
    with signals_noted(), others_restored():
        while True:
            try:
                begin, job = pipe.recv()
            except EOFError:
                return
            if begin is not None:
                broadcast = Broadcast(begin.round, buffers.down, tensors(begin.offers), begin.rounds)
            pipe.send(do(runner, buffers, broadcast, job))


def do(runner: SiteRunner, buffers: LocalBuffers, broadcast: Broadcast, job: Job) -> Any:
    """The answer to a job.

    Train: (examples, metrics, private state) of each client, or a failure. Evaluate: scores of each client,
    or a failure. OnCommon: predictions (None: they are in the buffers) and sums of own metrics, or scores of
    each batch, or a failure.
    """
    if isinstance(job, OnCommon):
        if job.temperature is not None:
            return runner.score_common(buffers.down, job.temperature, job.rows)
        predicted = runner.predict_common(buffers.down, job.rows)
        if isinstance(predicted, Failure):
            return predicted
        written = buffers.take(predicted.outputs, job.rows)
        return None if written else predicted.outputs.numpy(), predicted.sums
    states = [tensors(state) for state in job.states]
    if isinstance(job, Evaluate):
        return runner.evaluate_group(buffers.down, job.clients, states, job.own_test, job.detail)
    rows = [buffers.up[row] for row in job.rows]
    outcomes = runner.train_group(broadcast, job.clients, states, rows)
    return [pack(outcome) if isinstance(outcome, Trained) else outcome for outcome in outcomes]


def pack(trained: Trained) -> tuple[int, dict[str, float], Arrays]:
    """The outcome of training without the update, which is in the buffers."""
    return trained.reply.num_examples, dict(trained.reply.metrics), arrays(trained.state)


def arrays(values: Mapping[str, Tensor]) -> Arrays:
    """Tensors in a form that a pipe carries by value."""
    return {name: value.numpy() for name, value in values.items()}


def tensors(values: Arrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.require(value, requirements="W")) for name, value in values.items()}


def keep_memory() -> None:
    """Keep glibc from giving memory back to the system after every batch: each return costs page faults."""
    top_pad, trim_threshold, mmap_threshold = -2, -1, -3
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, 1 << 30)
        mallopt(trim_threshold, 1 << 30)
        mallopt(top_pad, 64 << 20)
