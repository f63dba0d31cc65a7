"""A worker process of the pool: what it shares with the server, what it is asked, how it answers."""

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

from steelyard.engines.base import Look, Rows, Workload, share
from steelyard.engines.serial import SerialSession
from steelyard.types import Broadcast, ClientId, Failure, Message, Trained

HEARTBEAT = 5.0  # seconds after which an idle worker looks whether the server is still there
Arrays = dict[str, NDArray[Any]]


class Begin(NamedTuple):
    """A new round; the model is on the board."""

    round: int
    rounds: int
    offers: Arrays


class Train(NamedTuple):
    """The work of some clients; their updates go into rows of the board."""

    clients: Sequence[ClientId]
    rows: Sequence[int]
    states: Sequence[Arrays]

    def singles(self) -> "list[Train]":
        """The same work, one client at a time."""
        return [
            Train([client], [row], [state])
            for client, row, state in zip(self.clients, self.rows, self.states, strict=True)
        ]


class Predict(NamedTuple):
    """Some rows of a test set, with what stayed with the client in a form that a pipe carries."""

    look: Look
    state: Arrays


Job = Train | Predict


class Board:
    """Shared memory: the model that goes down, and a row for each update that comes up."""

    def __init__(self, like: Message, rows: int) -> None:
        self.down = like.map(torch.empty_like).map(share)
        self.up = Rows(like, rows, shared=True)

    def write(self, message: Message) -> None:
        """Put up the model that goes down."""
        for shared, slot in zip(self.down, message, strict=True):
            if shared is not None and slot is not None:
                shared.copy_(slot)


def work(
    local: type[SerialSession], workload: Workload, board: Board, pipe: "Connection[Any, Any]", server: int
) -> None:
    """A worker's life: answer jobs until the server closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's business
    torch.set_num_threads(1)
    keep_memory()
    session = local(workload)
    gc.freeze()  # what is here now will stay, and need not be looked at again and again
    broadcast = Broadcast(0, board.down)
    while True:
        while not pipe.poll(HEARTBEAT):
            if os.getppid() != server:
                return
        try:
            begin, job = pipe.recv()
        except EOFError:
            return
        if begin is not None:
            broadcast = Broadcast(begin.round, board.down, tensors(begin.offers), begin.rounds)
        training = isinstance(job, Train)
        pipe.send(train(session, board, broadcast, job) if training else predict(session, board, job))


def train(session: SerialSession, board: Board, broadcast: Broadcast, job: Train) -> list[Any]:
    """(examples, metrics, state) of each client whose update is now on the board, or a failure."""
    states = [tensors(state) for state in job.states]
    outcomes = session.train_group(broadcast, job.clients, states, [board.up[row] for row in job.rows])
    return [pack(outcome) if isinstance(outcome, Trained) else outcome for outcome in outcomes]


def pack(trained: Trained) -> tuple[int, dict[str, float], Arrays]:
    """What a client sends, apart from its update."""
    return trained.reply.num_examples, dict(trained.reply.metrics), arrays(trained.state)


def predict(session: SerialSession, board: Board, job: Predict) -> NDArray[Any] | Failure:
    """Predictions, or a failure."""
    try:
        return session.predict(board.down, job.look._replace(state=tensors(job.state))).numpy()
    except Exception as error:
        return Failure(job.look.client or "the test set", "evaluating", f"{type(error).__name__}: {error}")


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
