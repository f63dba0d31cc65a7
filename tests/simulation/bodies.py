"""Clients with bodies of their own, and algorithms for them, that the tests share."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.engines import Serial
from steelyard.layout import tensors_of
from steelyard.objectives import Anchor, CrossEntropy, Distillation
from steelyard.sharing import Head
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import ClientId

NAMES = ("ghent", "oslo", "turin")
TRAINING = sy.Training(lr=0.2, batch_size=8)
SOLO = sy.Algorithm(CrossEntropy(), Head(adopt=False, common=False), training=TRAINING)
AVG = replace(SOLO, sharing=Head())
KD = replace(SOLO, objective=Distillation())
AVGKD = replace(AVG, objective=Distillation())
ANCHOR = replace(SOLO, objective=Anchor(), sharing=Head(adopt=False))
STRATEGIES = {"solo": SOLO, "avg": AVG, "kd": KD, "avgkd": AVGKD, "anchor": ANCHOR}
HEAD = 4 * 3 + 3
"""Numbers in the head that all agree on."""


def data(count: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three classes, seen through features of a client's own; the last class is rarer."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 1, 2, 0, 1])[torch.arange(count) % 5]
    view = torch.randn(3, width, generator=torch.Generator().manual_seed(width))
    return 1.5 * view[labels] + torch.randn(count, width, generator=random), labels


def perceptron(embed: int = 4, classes: int = 3, seed: int = 1, width: int = 5) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, embed), nn.Tanh(), nn.Linear(embed, classes))


def normalised(embed: int = 4, classes: int = 3) -> nn.Module:
    torch.manual_seed(2)
    body = (nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, embed), nn.Tanh())
    return nn.Sequential(*body, nn.Linear(embed, classes))


def convolution(embed: int = 4, classes: int = 3) -> nn.Module:
    torch.manual_seed(3)
    body = (nn.Unflatten(1, (1, 3, 3)), nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, embed), nn.Tanh())
    return nn.Sequential(*body, nn.Linear(embed, classes))


def clients(**models: nn.Module) -> list[Client]:
    """Of different inputs, kinds of body and sizes; some may bring another model."""
    usual = {"ghent": perceptron(), "oslo": normalised(), "turin": convolution(), **models}
    widths = {"ghent": 5, "oslo": 7, "turin": 9}
    made = []
    for number, name in enumerate(NAMES):
        train, test = (
            data(count, widths[name], number + seed) for count, seed in ((20 + number, 0), (40, 9))
        )
        held_out = data(10, widths[name], 77) if name == "oslo" else None
        made.append(Client(name, train, test, held_out, usual[name]))
    return made


def federation(algorithm: sy.Algorithm, members: Any = None, **settings: Any) -> Federation:
    settings = {"rounds": 3, "engine": Serial(), **settings}
    return Federation(clients() if members is None else members, algorithm=algorithm, **settings)


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in tensors_of(model).items()}


def own_test(client: ClientId) -> Any:
    return next(each for each in clients() if each.id == client).test
