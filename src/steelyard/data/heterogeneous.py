"""Data of parties that do not share one input space: each client has its own inputs, all know the classes."""

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
"""(labels, number of clients, what is split) -> the rows of each client."""

SOURCE = Source(
    name="digit-domains",
    about="handwritten, photographed and printed digits: MNIST, a part of MNIST-M, rendered-digits",
    licence="that of each part",
    bundled="its parts",
)


@dataclass(frozen=True, eq=False)
class HeterogeneousDataset(ABC):
    """A data set that deals its own clients; there is no common test set."""

    name: str
    class_names: tuple[str, ...]

    @abstractmethod
    def deal(self, split: Split, clients: int, seed: int) -> list[Client]:
        """The clients, without models."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


@dataclass(frozen=True, eq=False)
class Domains(HeterogeneousDataset):
    """Several data sets with the same classes; client k holds rows of the k-th, in turn.

    A client is tested on all classes of its domain, also on those that it never saw.
    """

    parts: tuple[Dataset, ...]
    size: int
    test: int

    def deal(self, split: Split, clients: int, seed: int) -> list[Client]:
        if clients < len(self.parts):
            raise InputError(f"{self.name} has {len(self.parts)} domains and needs as many clients.")
        dealt: dict[int, Client] = {}
        width = len(str(clients - 1))
        for place, part in enumerate(self.parts):
            members = range(place, clients, len(self.parts))
            train, test = part.train.take(torch.arange(self.size)), part.test.take(torch.arange(self.test))
            for number, rows in zip(members, split(train.labels, len(members), part.name), strict=True):
                dealt[number] = Client(f"client-{number:0{width}d}", train.take(rows), test)
        return [dealt[number] for number in sorted(dealt)]


def digit_domains(size: int = 3500, test: int = 700) -> HeterogeneousDataset:
    """MNIST 1×28×28, MNIST-M 3×32×32 and rendered digits 3×32×32, `size` + `test` images of each."""
    parts = (mnist(), mnist_m(), rendered_digits(max(size, 1), max(test, 1)))
    for name, count, sets in (("size", size, "train"), ("test", test, "test")):
        most = min(len(getattr(part, sets)) for part in parts)
        if not 1 <= count <= most:
            raise InputError(f"data set 'digit-domains': {name} is from 1 to {most}, not {count}.")
    return Domains("digit-domains", parts[0].class_names, parts, size, test)
