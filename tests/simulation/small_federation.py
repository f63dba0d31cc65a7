"""A small federation that the tests share."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from steelyard.server.result import Result
from steelyard.simulation import SimulatedFederation as Federation

Data = tuple[Tensor, Tensor]


def blobs(count: int, seed: int) -> Data:
    """Three classes around three corners."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    corners = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    return corners[labels] + torch.randn(count, 2, generator=random), labels


NAMES = ("lima", "oslo", "pisa", "turin")
CLIENTS: dict[str, Any] = {name: blobs(12 + 6 * number, number) for number, name in enumerate(NAMES)}
TEST = blobs(60, 99)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(2, 3)


def run(clients: Any = CLIENTS, model: nn.Module | None = None, **settings: Any) -> Result:
    settings = {"test": TEST, "rounds": 3, **settings}
    return Federation(clients, model or linear(), **settings).run()


def weights(result: Result) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in result.model.state_dict().items()}


class Table(Dataset[tuple[Tensor, int]]):
    """A torch data set that may add noise to every read and may fail."""

    def __init__(self, data: Data, noise: float = 0.0, broken: bool = False) -> None:
        self.data, self.noise, self.broken = data, noise, broken

    def __len__(self) -> int:
        return len(self.data[1])

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if self.broken and row > 1:  # the first rows are read when the federation is built
            raise OSError(f"disk error at row {row}")
        inputs = self.data[0][row]
        return inputs + self.noise * torch.randn(inputs.shape), int(self.data[1][row])
