"""A worker process of the pool: what it shares with the server, what it is asked, how it answers."""

import ctypes
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.engines.base import Workload
from steelyard.engines.serial import SerialSession
from steelyard.types import Broadcast, ClientId, Failure, Message

HEARTBEAT = 5.0  # seconds after which an idle worker looks whether the server is still there
Arrays = dict[str, NDArray[Any]]


class Train(NamedTuple):
    """One client's work; the update goes into a row of the board."""

    client: ClientId
    row: int
    round: int
    offers: Arrays
    state: Arrays


class Predict(NamedTuple):
    """A part of a test set."""

    client: ClientId | None
    rows: slice


Job = Train | Predict


class Board:
    """Shared memory: the model that goes down, and a row for each update that comes up."""

    def __init__(self, rows: int, like: Message) -> None:
        self.rows = rows
        self.down = Message(*(_shared(slot, ()) for slot in like))  # type: ignore[arg-type]
        self.up = Message(*(_shared(slot, (rows,)) for slot in like))  # type: ignore[arg-type]

    def write(self, message: Message) -> None:
        """Put up the model that goes down."""
        for shared, slot in zip(self.down, message, strict=True):
            if shared is not None and slot is not None:
                shared.copy_(slot)

    def put(self, row: int, message: Message) -> None:
        """Write an update into its row."""
        for shared, slot in zip(self.up, message, strict=True):
            if shared is not None and slot is not None:
                shared[row] = slot

    def row(self, row: int) -> Message:
        return Message(*(None if shared is None else shared[row] for shared in self.up))  # type: ignore[arg-type]


def _shared(slot: Tensor | None, rows: tuple[int, ...]) -> Tensor | None:
    if slot is None:
        return None
    shared: Tensor = slot.new_empty(*rows, *slot.shape).share_memory_()  # type: ignore[no-untyped-call]
    return shared


def work(workload: Workload, board: Board, pipe: "Connection[Any, Any]", server: int) -> None:
    """A worker's life: answer jobs until the server closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's business
    torch.set_num_threads(1)
    keep_memory()
    session = SerialSession(workload)
    while True:
        while not pipe.poll(HEARTBEAT):
            if os.getppid() != server:
                return
        try:
            jobs: list[Job] = pipe.recv()
        except EOFError:
            return
        pipe.send([answer(session, board, job) for job in jobs])


def answer(session: SerialSession, board: Board, job: Job) -> Any:
    """(examples, metrics, state) of a client whose update is on the board, predictions, or a failure."""
    if isinstance(job, Predict):
        try:
            return session.predict_rows(board.down, job.client, job.rows).numpy()
        except Exception as error:
            return Failure(job.client or "the test set", "evaluating", f"{type(error).__name__}: {error}")
    broadcast = Broadcast(job.round, board.down, tensors(job.offers))
    outcome = session.train_one(broadcast, job.client, tensors(job.state))
    if isinstance(outcome, Failure):
        return outcome
    board.put(job.row, outcome.reply.message)
    return outcome.reply.num_examples, dict(outcome.reply.metrics), arrays(outcome.state)


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
