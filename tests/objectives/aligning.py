"""Small models, and the alignment term by its formula, that the tests of alignment share."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.layout import Layout, layout_of
from steelyard.objectives import Objective
from steelyard.objectives.base import Local, LocalLoss
from steelyard.types import Broadcast, Message

RANDOM = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(12, 4, generator=RANDOM, dtype=torch.float64), torch.arange(12) % 3
IMAGES = torch.randn(12, 2, 12, 12, generator=RANDOM, dtype=torch.float64)
EPSILON = 1e-8
FORMS: list[Any] = ["gradient", "descent", "update"]


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def convolutions(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """Strides, paddings, groups, a convolution without bias, poolings with and without overlap."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2), activation(),
        nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.MaxPool2d(3, 1, padding=1), activation(),
        nn.Conv2d(6, 4, 2, stride=2, padding="valid"), nn.Conv2d(4, 3, 1, dilation=2), nn.Flatten(),
        nn.Linear(12, 3),
    ).double()  # fmt: skip


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def some_direction(model: nn.Module) -> Tensor:
    size = sum(parameter.numel() for parameter in model.parameters())
    return torch.randn(size, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def bind(
    objective: Objective, model: nn.Module, direction: Tensor | None, layout: Layout | None = None
) -> LocalLoss:
    offers = {} if direction is None else {"direction": direction}
    broadcast = Broadcast(2, Message(torch.zeros(0)), offers)
    return objective.bind(Local(model, trained(model), broadcast, 12, layout or layout_of(model)))


def full(model: nn.Module, local_loss: LocalLoss, inputs: Tensor = INPUTS) -> Tensor:
    """The gradient of the loss and what the objective adds to it."""
    model.zero_grad()
    local_loss.loss(inputs, TARGETS).backward()
    local_loss.add_gradient()
    return torch.cat([parameter.grad.flatten() for parameter in trained(model) if parameter.grad is not None])


def vector(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trained(model)])


def put(model: nn.Module, values: Tensor) -> None:
    with torch.no_grad():
        nn.utils.vector_to_parameters(values, trained(model))


def wander(model: nn.Module, by: float = 0.3) -> None:
    random = torch.Generator().manual_seed(3)
    now = vector(model)
    put(model, now + by * torch.randn(len(now), generator=random, dtype=torch.float64))


def penalty(model: nn.Module, form: str, mine: Tensor, start: Tensor, inputs: Tensor = INPUTS) -> Tensor:
    """The term by its formula, λ = 1; differentiable, on the model as it is. `mine`: v̄ of what is trained."""
    parameters = trained(model)
    if form == "update":
        way = torch.cat([parameter.flatten() for parameter in parameters]) - start
        return 1 - F.cosine_similarity(way, mine, dim=0)
    loss = F.cross_entropy(model(inputs), TARGETS)
    parts = torch.autograd.grad(loss, parameters, create_graph=True)
    gradient = torch.cat([part.reshape(-1) for part in parts])
    cosine = (gradient / (gradient.norm() + EPSILON)) @ (mine / (mine.norm() + EPSILON))
    return 1 - cosine if form == "gradient" else 1 + cosine


def of_trained(model: nn.Module, direction: Tensor) -> Tensor:
    """The part of a direction that belongs to trained parameters."""
    parts = torch.split(direction, [parameter.numel() for parameter in model.parameters()])
    pairs = zip(model.parameters(), parts, strict=True)
    return torch.cat([part for parameter, part in pairs if parameter.requires_grad])
