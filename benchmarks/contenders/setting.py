"""The task of every contender, readable with numpy and torch alone, and plain PyTorch training.

`simulation.py` writes a folder; a contender reads it, runs the rounds and prints a line of JSON for each.
"""

import functools
import importlib
import json
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.nn import zoo

Table = tuple[Tensor, Tensor]
EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Setting:
    """A setting, read from its folder. Arrays are loaded when they are needed."""

    folder: Path
    facts: dict[str, Any]

    @property
    def cohorts(self) -> list[list[int]]:
        """The clients of each round."""
        return self.facts["cohorts"]

    def order(self, number: int, client: int) -> torch.Generator:
        """The generator that shuffles a client's rows in a round, the same for all contenders."""
        place = self.cohorts[number - 1].index(client)
        return torch.Generator().manual_seed(self.facts["orders"][number - 1][place])

    @property
    def training(self) -> dict[str, Any]:
        return self.facts["training"]

    @property
    def evaluates(self) -> bool:
        return self.facts["evaluates"]

    def network(self) -> nn.Module:
        """The model with random weights."""
        choice = dict(self.facts["model"])
        module, _, function = choice.pop("name").rpartition(":")
        factory = getattr(importlib.import_module(module or zoo.__name__), function.replace("-", "_"))
        network: nn.Module = factory(tuple(self.facts["input_shape"]), self.facts["num_classes"], **choice)
        return network

    def model(self) -> nn.Module:
        """The model with its initial weights."""
        model = self.network()
        with np.load(self.folder / "weights.npz") as weights:
            model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights.files})
        return model

    @property
    def invited(self) -> list[int]:
        """All clients that are in a cohort."""
        return sorted({client for cohort in self.cohorts for client in cohort})

    @property
    def sizes(self) -> list[int]:
        """The number of examples of each client."""
        return np.diff(self._array("offsets")).tolist()

    def client(self, number: int) -> Table:
        """A client's inputs as floats, ready for the model, and its targets."""
        start, stop = self._array("offsets")[number : number + 2]
        rows = np.array(self._array("rows")[start:stop])
        return self._floats(self._array("inputs")[rows]), torch.from_numpy(self._array("targets")[rows])

    def test(self) -> Table:
        """The whole test set: inputs as floats, and targets."""
        return self._floats(np.array(self._array("test_inputs"))), torch.from_numpy(
            np.array(self._array("test_targets"))
        )

    def _floats(self, inputs: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(inputs)
        if tensor.dtype != torch.uint8:
            return tensor
        shape = (-1,) + (1,) * (tensor.dim() - 2)
        mean, std = (torch.tensor(self.facts[name]).view(shape) for name in ("mean", "std"))
        return (tensor.float() / 255 - mean) / std

    def _array(self, name: str) -> np.ndarray:
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")


@functools.cache
def read(folder: str) -> Setting:
    return Setting(Path(folder), json.loads((Path(folder) / "setting.json").read_text("utf-8")))


@functools.cache
def table(folder: str, client: int) -> Table:
    """A client's data, cached in this process."""
    return read(folder).client(client)


def train(model: nn.Module, table: Table, training: dict[str, Any], order: torch.Generator) -> None:
    """Plain local training with torch.optim."""
    x, y = table
    size, steps = training["batch_size"], training["steps"]
    optimizer = torch.optim.SGD(model.parameters(), lr=training["lr"], momentum=training["momentum"])
    model.train()
    done = 0
    for _ in range(training["epochs"] if steps is None else steps):  # no more epochs than steps
        shuffled = torch.randperm(len(x), generator=order)
        for start in range(0, len(x), size):
            if done == steps:
                return
            rows = shuffled[start : start + size]
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            done += 1


@torch.no_grad()
def evaluate(model: nn.Module, table: Table) -> float:
    """Accuracy on the whole test set."""
    model.eval()
    logits = torch.cat([model(part) for part in torch.split(table[0], EVALUATION_BATCH)])
    return float((logits.argmax(1) == table[1]).float().mean())


def say(**facts: Any) -> None:
    """Print a line of JSON for `simulation.py`."""
    print(json.dumps({**facts, "at": time.time()}), flush=True)


def say_round(number: int, seconds: float, accuracy: float | None, **more: float) -> None:
    say(round=number, seconds=seconds, accuracy=accuracy, **more)


def say_versions(*packages: str) -> None:
    say(versions={name: version(name) for name in packages})


def argument() -> str:
    """The setting's folder, from the command line."""
    return sys.argv[1]
