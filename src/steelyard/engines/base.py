"""What an engine is: where the clients' work runs. Engines know no algorithm."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from steelyard.client.learner import Learner
from steelyard.data.clients import Client, Part, Population
from steelyard.data.examples import AnyExamples, Examples
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message, State, Trained

CONVERTED = 128 << 20  # bytes of test data that may be kept as floats


@dataclass(frozen=True, eq=False)
class Workload:
    """What stays the same for a whole run, handed to an engine once."""

    model: nn.Module | None
    """That of every client who brings none of its own."""
    learner: Learner
    clients: Mapping[ClientId, Client]
    test: AnyExamples | None = None

    def size(self, client: ClientId) -> int:
        """A client's training examples, or 0 if that is not known without reading them."""
        if isinstance(self.clients, Population):
            return self.clients.size(client)
        return len(self.clients[client].train)

    def test_data(self, client: ClientId | None, part: Part = "test") -> AnyExamples:
        """A client's own test data or what it holds out, or the common test set."""
        if client is None or part == "common":
            data: AnyExamples | None = self.common_test
        else:
            data = getattr(self.clients[client], part)
        assert data is not None
        return data

    @cached_property
    def common_test(self) -> AnyExamples | None:
        """The common test set, converted once if that is not much: it is read in every round."""
        if (
            isinstance(self.test, Examples)
            and 4 * math.prod(self.test.input_shape) * len(self.test) < CONVERTED
        ):
            return self.test.as_floats()
        return self.test


class Rows:
    """A matrix with a row for each update of a round, so that they lie under each other from the start."""

    def __init__(self, like: Message, count: int, shared: bool = False) -> None:
        self.count = count
        self.matrices = like.map(lambda slot: slot.new_empty(count, *slot.shape))
        if shared:
            self.matrices.map(share)

    def __getitem__(self, row: int) -> Message:
        return self.matrices.map(lambda matrix: matrix[row])


def share(tensor: Tensor) -> Tensor:
    """Move a tensor into memory that child processes see."""
    shared: Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return shared


class Look(NamedTuple):
    """What is predicted: a client's own test data or what it holds out, or the common test set."""

    client: ClientId | None = None
    part: Part = "test"
    state: State = EMPTY
    """What has stayed with the client."""
    shared: bool = False
    """Leave out of that what has a shared form."""
    rows: slice = slice(None)
    """Only these; they start where a batch does."""


class Session(Protocol):
    """An engine at work on one workload."""

    @property
    def about(self) -> str:
        """How the work is done, for the record."""

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        """Train these clients, in any order; yield each as it is done. The next round reuses the memory of
        the updates."""

    def predict(self, message: Message, look: Look) -> Tensor:
        """Log-probabilities [N, C]."""


class Engine(ABC):
    """Where a federation runs."""

    @abstractmethod
    def open(self, workload: Workload) -> AbstractContextManager[Session]: ...


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums depend in their last bits on the number of threads, so everything that counts runs on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
