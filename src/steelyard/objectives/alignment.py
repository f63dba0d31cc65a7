"""FedBaC's regulariser: align local training with the direction of the global model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd import Function

from steelyard.devices import exact
from steelyard.errors import InputError, unknown
from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.double_backward import FastDoubleBackward
from steelyard.objectives.wrapper import Wrapper

EPSILON = 1e-8
Form = Literal["gradient", "descent", "update"]


@dataclass(frozen=True)
class Alignment(Wrapper):
    """Add λ(1 − cos(·, v̄)) to another objective, with v̄ the direction that the server offers (FedBaC).

    `form` says what is compared with v̄, over the parameters that are both trained and shared:

    - `gradient`: the gradient g of the base's loss on the batch (Algorithm 1, as published). g points uphill,
      so the term favours weights at which the steps −g are opposed to v̄. For a convex loss, the term itself
      moves the weights along v̄ to get there;
    - `descent`: −g. The term favours weights at which the steps follow v̄, and moves them along −v̄;
    - `update`: w − w_t, the update since the round began (§3.4).

    The first two differentiate g again, exactly. The term is 0 if there is no direction, if v̄ = 0, or if
    w = w_t in `update`.
    """

    strength: float = 1e-6
    form: Form = "gradient"
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.strength < math.inf:
            raise InputError(
                f"objective 'alignment': strength must be a finite number, at least 0, not {self.strength}."
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
    """The parameters that are both trained and shared, and their part of the direction as one vector."""
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
    wide = exact(direction).double()
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
    """value + λ(1 − ⟨g, unit⟩ / (‖g‖ + ε)), differentiable with respect to the value and each part of g."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, unit: Tensor, strength: float, *gradients: Tensor) -> Tensor:
        gradient = _flat(gradients)
        norm, projection = math.sqrt(gradient @ gradient), float(gradient @ unit)
        scale = strength / (norm + EPSILON)
        factor = scale * projection / (norm + EPSILON) / norm if norm > 0 else 0.0
        ctx.derivative = gradient.mul_(factor).sub_(unit, alpha=scale)
        ctx.shapes = [part.shape for part in gradients]
        return value + strength - scale * projection

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        return grad_output, None, None, *_split(ctx.derivative * grad_output, ctx.shapes)


def _bind_update(
    base: LocalLoss, parameters: Sequence[Tensor], direction: Tensor, strength: float
) -> LocalLoss:
    """§3.4: λ(1 − cos(v, v̄)) with v = w − w_t, and its gradient −λ(v̄/‖v̄‖ − cos·v/‖v‖)/‖v‖."""
    wide, shapes = exact(direction).double(), [parameter.shape for parameter in parameters]
    start = _flat(parameters)
    update, unit = torch.zeros_like(start), (wide / wide.norm()).to(start)
    start_parts, update_parts, unit_parts = (_split(vector, shapes) for vector in (start, update, unit))

    @torch.no_grad()
    def measure() -> tuple[float, float]:
        """The norm of the update, and its cosine with the direction."""
        for parameter, start_part, update_part in zip(parameters, start_parts, update_parts, strict=True):
            torch.sub(parameter, start_part, out=update_part)
        norm = math.sqrt(update @ update)
        return norm, float(update @ unit) / norm if norm > 0 else 0.0

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        value = base.loss(inputs, targets)
        norm, cosine = measure()
        return value + strength * (1 - cosine) if norm > 0 else value

    @torch.no_grad()
    def add_gradient() -> None:
        base.add_gradient()
        norm, cosine = measure()
        if norm == 0:
            return
        for parameter, update_part, unit_part in zip(parameters, update_parts, unit_parts, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(update_part, alpha=strength * cosine / norm**2)
                parameter.grad.sub_(unit_part, alpha=strength / norm)

    return LocalLoss(loss, add_gradient)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """One new vector of all values, detached."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _split(vector: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Views of consecutive parts of a vector, in the given shapes."""
    parts = torch.split(vector, [shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
