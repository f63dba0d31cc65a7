"""Runs of federations on the CPU and on a device that is not there, which must agree. A program of its own.

It prints as JSON, for each case, "same bits", "close", or what went wrong; and what was copied to the device.
"""

import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pretend_device

if __name__ == "__main__":
    pretend_device.register()  # before steelyard is imported

import any_tasks
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import steelyard as sy
from steelyard.combining import Rklb
from steelyard.objectives import (
    Alignment,
    Anchor,
    BinaryCrossEntropy,
    CrossEntropy,
    Distillation,
    Elbo,
    Proximal,
)
from steelyard.sharing import Adapter, Head, Posterior, Trainable
from steelyard.weighing import Concord

random = torch.Generator().manual_seed(0)
IMAGES = torch.randint(0, 256, (60, 1, 8, 8), generator=random, dtype=torch.uint8)
INPUTS = torch.randn(60, 4, generator=random)
CLASSES = torch.arange(60) % 3
LABELS = torch.rand(60, 3, generator=random).round()
NUMBERS = INPUTS @ torch.tensor([1.0, -1.0, 0.5, 2.0])


def parts(*tables: Tensor) -> dict[str, Any]:
    """Tables in three parts, a client each."""
    return {name: tuple(table[place::3] for table in tables) for place, name in enumerate("abc")}


def mlp(outputs: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, outputs))


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def cnn() -> nn.Module:
    torch.manual_seed(0)
    body = (nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*body, nn.Linear(64, 3))


class Low(nn.Module):
    """A layer with a LoRA adapter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base_layer = nn.Linear(4, 3).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.base_layer(inputs) + self.lora_B(self.lora_A(inputs))
        return outputs


class Restless(nn.Module):
    """Puts other tensors in the place of a buffer, and changes a frozen parameter through `.data`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.book = nn.Linear(4, 3), nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean(0)
            self.book.data.add_(inputs.detach().mean(0), alpha=0.1)
        outputs: Tensor = self.layer(inputs - self.mean - self.book)
        return outputs


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Items with a random transform."""

    def __init__(self, place: int) -> None:
        self.inputs, self.targets = INPUTS[place::3], CLASSES[place::3]

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.inputs[row] + 0.1 * torch.randn(4), self.targets[row]


def loaders() -> dict[str, Any]:
    found = {}
    for place, name in enumerate("abc"):
        data = TensorDataset(INPUTS[place::3], CLASSES[place::3])
        found[name] = DataLoader(data, batch_size=4, shuffle=True)
    return found


def own_models() -> list[sy.Client]:
    clients = parts(INPUTS, CLASSES)
    return [
        sy.Client(name, clients[name], (INPUTS, CLASSES), model=mlp(seed=place))
        for place, name in enumerate("abc")
    ]


def federation(engine: Any, clients: Any, model: Any, test: Any = None, **settings: Any) -> sy.Federation:
    given = {name: settings.pop(name) for name in PARTS if name in settings}
    steps = settings.pop("steps", {})
    training = sy.Training(**{"lr": 0.1, "batch_size": 8, "memory_format": "contiguous", **steps})
    algorithm = sy.Algorithm(training=training, **given)
    return sy.Federation(clients, model, algorithm, rounds=3, test=test, engine=engine, **settings)


PARTS = ("objective", "sharing", "server", "weighing", "combining")
ROWS, TEST = partial(parts, INPUTS, CLASSES), (INPUTS, CLASSES)
TABLE = partial(federation, clients=ROWS(), test=TEST)
SCALED = partial(sy.examples, mean=0.2, std=0.4)
PICTURES = {name: SCALED(each) for name, each in parts(IMAGES, CLASSES).items()}
Make = Callable[[Any], sy.Federation]
CASES: dict[str, Make] = {
    "dropout": lambda engine: TABLE(engine, model=mlp()),
    "held out": lambda engine: TABLE(engine, model=mlp(), validation=0.2),
    "own validation set": lambda engine: TABLE(engine, model=mlp(), validation=TEST),
    "images in bytes": lambda engine: federation(
        engine, PICTURES, cnn(), SCALED((IMAGES, CLASSES)), steps={"momentum": 0.9}
    ),
    "alignment": lambda engine: federation(
        engine,
        PICTURES,
        cnn(),
        objective=Alignment(strength=0.1),
        weighing=Concord(),
    ),
    "alignment of updates": lambda engine: TABLE(
        engine, model=mlp(), objective=Alignment(strength=0.1, form="update"), weighing=Concord()
    ),
    "posteriors": lambda engine: TABLE(
        engine,
        model=sy.bayesian(mlp(), last=2),
        objective=Elbo(prior="global"),
        sharing=Posterior(),
        combining=Rklb(),
        validation=0.2,
    ),
    "heads": lambda engine: federation(
        engine,
        own_models(),
        None,
        TEST,
        sharing=Head(adopt=False),
        objective=Distillation(base=Anchor()),
        spill=True,
    ),
    "bayesian heads": lambda engine: federation(
        engine,
        ROWS(),
        sy.bayesian(mlp(), last=1),
        sharing=Head(posterior=True),
        combining=Rklb(),
        objective=Elbo(prior="global"),
    ),
    "class counts": lambda engine: TABLE(engine, model=mlp(), objective=CrossEntropy(balance=1.0)),
    "class weights": lambda engine: TABLE(
        engine, model=mlp(), objective=Proximal(base=CrossEntropy(class_weights=(1.0, 2.0, 3.0)))
    ),
    "positive weight": lambda engine: federation(
        engine, parts(INPUTS, LABELS), mlp(), (INPUTS, LABELS), objective=BinaryCrossEntropy(2.0)
    ),
    "own loss with weights": lambda engine: TABLE(
        engine, model=mlp(), objective=Proximal(base=nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0])))
    ),
    "regression": lambda engine: federation(engine, parts(INPUTS, NUMBERS), mlp(1), (INPUTS, NUMBERS)),
    "adam": lambda engine: TABLE(engine, model=mlp(), steps={"optimizer": "adam", "lr": 0.01}),
    "adamw, clipped": lambda engine: TABLE(
        engine, model=mlp(), steps={"optimizer": "adamw", "clip_norm": 0.1, "accumulate": 2}
    ),
    "adapters": lambda engine: TABLE(engine, model=Low(), sharing=Adapter()),
    "padded adapters": lambda engine: TABLE(engine, model=Low(), sharing=Adapter(rank=3)),
    "trainable": lambda engine: TABLE(engine, model=Low(), sharing=Trainable()),
    "restless": lambda engine: TABLE(engine, model=Restless(), sharing=Trainable()),
    "items": lambda engine: federation(
        engine, {name: Noisy(place) for place, name in enumerate("abc")}, linear(), Noisy(0)
    ),
    "loaders": lambda engine: federation(engine, loaders(), linear(), TEST),
    "auto": lambda engine: TABLE({**engine, "name": "auto"}, model=mlp()),
    "vectorized": lambda engine: TABLE(
        {**engine, "name": "vectorized"} if "device" in engine else engine, model=linear()
    ),
    "a pool after that": lambda engine: TABLE(
        {"name": "pool"} if "device" in engine else engine, model=mlp()
    ),
    **{
        f"task: {kind}": partial(lambda kind, engine: any_tasks.federation(kind, engine=engine), kind)
        for kind in any_tasks.KINDS
    },
}


def found(result: Any) -> dict[str, Tensor]:
    """All numbers of a run."""
    values = dict(result.model.state_dict())
    for place, round in enumerate(result.as_rounds()):
        values |= {f"{place}.{name}": torch.tensor(each) for name, each in round.metrics.items()}
    return values


def compared(make: Make) -> str:
    torch.manual_seed(1)
    plain, before = found(make({"name": "serial"}).run()), pretend_device.Module.generator.get_state()
    moved = found(make({"name": "serial", "device": "pretend"}).run())
    if not torch.equal(before, pretend_device.Module.generator.get_state()):
        return "the generator of the device was not restored"
    if plain.keys() != moved.keys():
        return f"other numbers: {sorted(plain.keys() ^ moved.keys())}"
    if any(type(value) is not Tensor for value in moved.values()):
        return "the result has tensors on the device"
    pairs = [(name, value, moved[name]) for name, value in plain.items() if not name.endswith("seconds")]
    if all(torch.equal(value.nan_to_num(), other.nan_to_num()) for _, value, other in pairs):
        return "same bits"
    far = [
        name
        for name, value, other in pairs
        if not torch.allclose(value, other, rtol=1e-4, atol=1e-6, equal_nan=True)
    ]
    return f"they differ: {far[:5]}" if far else "close"


def outcome(make: Make) -> str:
    try:
        return compared(make)
    except Exception:
        return traceback.format_exc()


def elements_copied(rounds: int) -> int:
    """Numbers that a run with images copies to the device."""
    pretend_device.copied.clear()
    made = CASES["images in bytes"]({"name": "serial", "device": "pretend"})
    made.rounds = rounds
    made.run()
    return pretend_device.copied["to"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    outcomes = {name: outcome(CASES[name]) for name in sys.argv[1:] or CASES}
    print(json.dumps({"outcomes": outcomes, "copied": [elements_copied(rounds) for rounds in (1, 2, 3)]}))
