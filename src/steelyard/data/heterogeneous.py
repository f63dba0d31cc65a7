"""Data sets whose clients have different inputs (shapes, columns) but the same classes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.data.clients import Client
from steelyard.data.dataset import Dataset
from steelyard.data.mnist import mnist
from steelyard.data.mnist_m import mnist_m
from steelyard.data.rendered_digits import rendered_digits
from steelyard.data.store import Source
from steelyard.errors import InputError

Split = Callable[[Tensor, int, str], Sequence[Tensor]]
"""A partition: (labels, number of clients, name of the part) -> the rows of each client."""

SOURCE = Source(
    name="digit-domains",
    about="handwritten, photographed and printed digits: MNIST, a part of MNIST-M, rendered-digits",
    licence="as for each part",
    bundled="its parts",
)


@dataclass(frozen=True, eq=False)
class HeterogeneousDataset(ABC):
    """A data set that creates its own clients. There is no common test set."""

    name: str
    class_names: tuple[str, ...]

    @abstractmethod
    def deal(self, split: Split, clients: int, seed: int) -> list[Client]:
        """Create the clients, without models."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


@dataclass(frozen=True, eq=False)
class Domains(HeterogeneousDataset):
    """n data sets with the same classes; client k has rows of data set k mod n.

    A client is tested on all classes of its domain, including classes that it has no training rows of.
    """

    parts: tuple[Dataset, ...]
    size: int
    test: int

    def deal(self, split: Split, clients: int, seed: int) -> list[Client]:
        if clients < len(self.parts):
            raise InputError(f"{self.name} has {len(self.parts)} domains and needs at least as many clients.")
        by_number: dict[int, Client] = {}
        width = len(str(clients - 1))
        for first, part in enumerate(self.parts):
            numbers = range(first, clients, len(self.parts))
            train, test = part.train.take(torch.arange(self.size)), part.test.take(torch.arange(self.test))
            for number, rows in zip(numbers, split(train.labels, len(numbers), part.name), strict=True):
                by_number[number] = Client(f"client-{number:0{width}d}", train.take(rows), test)
        return [by_number[number] for number in sorted(by_number)]


def digit_domains(size: int = 3500, test: int = 700) -> HeterogeneousDataset:
    """MNIST 1×28×28, MNIST-M 3×32×32 and rendered digits 3×32×32, `size` + `test` images of each."""
    parts = (mnist(), mnist_m(), rendered_digits(max(size, 1), max(test, 1)))
    for name, count, field in (("size", size, "train"), ("test", test, "test")):
        limit = min(len(getattr(part, field)) for part in parts)
        if not 1 <= count <= limit:
            raise InputError(f"data set 'digit-domains': {name} must be from 1 to {limit}, not {count}.")
    return Domains("digit-domains", parts[0].class_names, parts, size, test)
