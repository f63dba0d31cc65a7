"""A small model, a shared head and losses, that the tests of distillation and of the anchor share."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.objectives import Anchor, Distillation, Objective
from steelyard.objectives.base import Local
from steelyard.sharing import Head, Sharing
from steelyard.types import Broadcast, Message

RANDOM = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(9, 4, generator=RANDOM, dtype=torch.float64), torch.arange(9) % 3
HEAD = torch.randn(18, generator=RANDOM, dtype=torch.float64)
"""The shared head: 3 × 5 weights and 3 biases."""
WITH_TEACHER: list[Any] = [Distillation(), Anchor()]
SHARED = Head()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def local(
    model: nn.Module, round: int = 2, rounds: int = 10, sharing: Sharing = SHARED, head: Tensor = HEAD
) -> Local:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Local(
        model, parameters, Broadcast(round, Message(head), {}, rounds), len(INPUTS), sharing.layout(model)
    )


def loss(objective: Objective, model: nn.Module, **settings: Any) -> Tensor:
    return objective.bind(local(model, **settings)).loss(INPUTS, TARGETS)


def plain(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(INPUTS), TARGETS)


def shared(embedding: Tensor, head: Tensor = HEAD) -> Tensor:
    """The logits of the shared head."""
    return embedding @ head[:15].view(3, 5).T + head[15:]


def slopes(value: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(model.parameters()), materialize_grads=True))
