"""What every contender must do, in a form that needs only numpy and torch, and plain training in PyTorch.

The orchestrator writes a folder; a contender reads it, plays the rounds and prints a JSON line for each.
"""

import functools
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
    """One setting, read from its folder. The arrays stay on disk until they are needed."""

    folder: Path
    facts: dict[str, Any]

    @property
    def cohorts(self) -> list[list[int]]:
        """The clients of each round."""
        return self.facts["cohorts"]

    def order(self, number: int, client: int) -> torch.Generator:
        """Shuffles a client's rows in a round, in the same way for everyone."""
        place = self.cohorts[number - 1].index(client)
        return torch.Generator().manual_seed(self.facts["orders"][number - 1][place])

    @property
    def training(self) -> dict[str, Any]:
        return self.facts["training"]

    @property
    def evaluates(self) -> bool:
        return self.facts["evaluates"]

    def network(self) -> nn.Module:
        """The model with any weights."""
        choice = dict(self.facts["model"])
        factory = getattr(zoo, choice.pop("name").replace("-", "_"))
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
        """Everyone who is in a cohort."""
        return sorted({client for cohort in self.cohorts for client in cohort})

    @property
    def sizes(self) -> list[int]:
        """How many examples each client has."""
        return np.diff(self._array("offsets")).tolist()

    def client(self, number: int) -> Table:
        """A client's inputs as floats, ready for the model, and its targets."""
        start, stop = self._array("offsets")[number : number + 2]
        rows = np.array(self._array("rows")[start:stop])
        return self._floats(self._array("inputs")[rows]), torch.from_numpy(self._array("targets")[rows])

    def test(self) -> Table:
        """The whole test set, likewise."""
        return self._floats(np.array(self._array("test_inputs"))), torch.from_numpy(
            np.array(self._array("test_targets"))
        )

    def _floats(self, inputs: np.ndarray) -> Tensor:
        found = torch.from_numpy(inputs)
        if found.dtype != torch.uint8:
            return found
        shape = (-1,) + (1,) * (found.dim() - 2)
        mean, std = (torch.tensor(self.facts[name]).view(shape) for name in ("mean", "std"))
        return (found.float() / 255 - mean) / std

    def _array(self, name: str) -> np.ndarray:
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")


@functools.cache
def read(folder: str) -> Setting:
    return Setting(Path(folder), json.loads((Path(folder) / "setting.json").read_text("utf-8")))


@functools.cache
def table(folder: str, client: int) -> Table:
    """A client's floats, which stay in the process that asked for them."""
    return read(folder).client(client)


def train(model: nn.Module, table: Table, training: dict[str, Any], order: torch.Generator) -> None:
    """Local training as anyone would write it."""
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
    """A line for the orchestrator."""
    print(json.dumps({**facts, "at": time.time()}), flush=True)


def say_round(number: int, seconds: float, accuracy: float | None, **more: float) -> None:
    say(round=number, seconds=seconds, accuracy=accuracy, **more)


def say_versions(*packages: str) -> None:
    say(versions={name: version(name) for name in packages})


def argument() -> str:
    """The folder that the orchestrator names."""
    return sys.argv[1]
