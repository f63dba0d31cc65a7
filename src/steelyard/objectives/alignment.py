"""FedBaC's regulariser: go the way the federation has been going."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd import Function

from steelyard.errors import InputError, unknown
from steelyard.objectives.base import Local, LocalLoss, Objective, Wrapper
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.double_backward import FastDoubleBackward

EPSILON = 1e-8
Form = Literal["gradient", "descent", "update"]


@dataclass(frozen=True)
class Alignment(Wrapper):
    """Add λ(1 − cosine with v̄), the direction that the server offers, to another objective (FedBaC).

    The cosine with v̄ is, over the parameters that are both trained and shared, that of

    - `gradient`: the batch's gradient g of the base's loss (Algorithm 1, as published). g points uphill, so
      the term leads to where steps −g run against v̄; where the loss is convex, the way there is along v̄;
    - `descent`: −g. The term leads to where steps run along v̄; the way there is against it;
    - `update`: w − w_t, the way gone since the round began (§3.4).

    The first two differentiate g again, exactly. While there is no direction, or it is 0, or w = w_t in
    `update`, the term is 0.
    """

    strength: float = 1e-6
    form: Form = "gradient"
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        if not 0 <= self.strength < math.inf:
            raise InputError(
                f"objective 'alignment': strength must be a number of at least 0, not {self.strength}."
            )
        if self.form not in get_args(Form):
            raise unknown("form", str(self.form), get_args(Form), of="objective 'alignment'")

    @property
    def needs(self) -> frozenset[str]:
        return self.base.needs | {"direction"}

    def bind(self, local: Local) -> LocalLoss:
        base = self.base.bind(local)
        if self.strength == 0:
            return base
        parameters, direction = _shared(local)
        if not direction.any():
            return LocalLoss(base.loss, base.add_gradient)
        if self.form == "update":
            return _bind_update(base, parameters, direction, self.strength)
        sign = 1 if self.form == "gradient" else -1
        return _bind_gradient(base, parameters, direction, self.strength, sign)


def _shared(local: Local) -> tuple[list[Tensor], Tensor]:
    """The parameters that are both trained and shared, and the direction offered for them, in one vector."""
    direction = local.broadcast.offers.get("direction")
    if direction is None:
        return [], torch.zeros(0)
    named = dict(local.model.named_parameters(remove_duplicate=False))
    places = {id(named[entry.name]): entry for entry in local.layout.parameters}
    parameters = [parameter for parameter in local.parameters if id(parameter) in places]
    entries = [places[id(parameter)] for parameter in parameters]
    parts = [direction[entry.start : entry.stop] for entry in entries]
    return parameters, torch.cat(parts) if parts else torch.zeros(0)


def _bind_gradient(
    base: LocalLoss, parameters: Sequence[Tensor], direction: Tensor, strength: float, sign: int
) -> LocalLoss:
    """Algorithm 1: λ(1 ∓ ⟨g, v̄⟩ / (‖g‖ + ε)(‖v̄‖ + ε))."""
    wide = direction.double()
    unit = (sign * wide / (wide.norm() + EPSILON)).to(_flat(parameters))

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        with FastDoubleBackward():
            value = base.loss(inputs, targets)
        gradients = torch.autograd.grad(
            value, parameters, create_graph=True, allow_unused=True, materialize_grads=True
        )
        total: Tensor = _Aligned.apply(value, unit, strength, *gradients)  # type: ignore[no-untyped-call]
        return total

    return LocalLoss(loss, base.add_gradient)


class _Aligned(Function):
    """value + λ(1 − ⟨g, unit⟩ / (‖g‖ + ε)), differentiable by the value and by each part of g."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, unit: Tensor, strength: float, *gradients: Tensor) -> Tensor:
        gradient = _flat(gradients)
        length, along = math.sqrt(gradient @ gradient), float(gradient @ unit)
        scale = strength / (length + EPSILON)
        back = scale * along / (length + EPSILON) / length if length > 0 else 0.0
        ctx.slopes = gradient.mul_(back).sub_(unit, alpha=scale)
        ctx.shapes = [part.shape for part in gradients]
        return value + strength - scale * along

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        return slope, None, None, *_split(ctx.slopes * slope, ctx.shapes)


def _bind_update(
    base: LocalLoss, parameters: Sequence[Tensor], direction: Tensor, strength: float
) -> LocalLoss:
    """§3.4: λ(1 − cos(v, v̄)) with v = w − w_t, and its gradient −λ(v̄/‖v̄‖ − cos·v/‖v‖)/‖v‖."""
    wide, shapes = direction.double(), [parameter.shape for parameter in parameters]
    start = _flat(parameters)
    way, unit = torch.zeros_like(start), (wide / wide.norm()).to(start)
    starts, ways, units = (_split(vector, shapes) for vector in (start, way, unit))

    @torch.no_grad()
    def measure() -> tuple[float, float]:
        """How long the way is that was gone, and its cosine with the direction."""
        for now, then, difference in zip(parameters, starts, ways, strict=True):
            torch.sub(now, then, out=difference)
        length = math.sqrt(way @ way)
        return length, float(way @ unit) / length if length > 0 else 0.0

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        value = base.loss(inputs, targets)
        length, cosine = measure()
        return value + strength * (1 - cosine) if length > 0 else value

    @torch.no_grad()
    def add_gradient() -> None:
        base.add_gradient()
        length, cosine = measure()
        if length == 0:
            return
        for parameter, mine, wanted in zip(parameters, ways, units, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(mine, alpha=strength * cosine / length**2)
                parameter.grad.sub_(wanted, alpha=strength / length)

    return LocalLoss(loss, add_gradient)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """One new vector, outside of autograd."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _split(vector: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """The parts of a vector, each in its shape."""
    parts = torch.split(vector, [shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
