"""How a client steps: torch's optimisers in their functional form.

State is explicit, one fused kernel does a step, and on small models a step costs a tenth of what the
`torch.optim` classes take (14 against 114 microseconds for a small perceptron).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from steelyard.errors import InputError

Step = Callable[[Sequence[Tensor]], None]
"""Moves the parameters, given their gradients."""


@dataclass(frozen=True)
class Training:
    """How a client trains in a round: for `epochs` passes over its data or, if given, for `steps` batches."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("lr", "batch_size", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"training.{name} must be greater than 0, not {value}.")


def make_sgd(parameters: Sequence[Tensor], training: Training) -> Step:
    velocities = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(gradients: Sequence[Tensor]) -> None:
        sgd(
            list(parameters),
            list(gradients),
            list(velocities),
            fused=True,
            lr=training.lr,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    return step


def make_adam(parameters: Sequence[Tensor], training: Training) -> Step:
    firsts = [torch.zeros_like(parameter) for parameter in parameters]
    seconds = [torch.zeros_like(parameter) for parameter in parameters]
    counts = [torch.zeros((), device=parameter.device) for parameter in parameters]

    @torch.no_grad()
    def step(gradients: Sequence[Tensor]) -> None:
        adam(
            list(parameters),
            list(gradients),
            firsts,
            seconds,
            [],
            counts,
            fused=True,
            lr=training.lr,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            weight_decay=training.weight_decay,
            amsgrad=False,
            maximize=False,
        )

    return step


OPTIMIZERS: Mapping[str, Callable[[Sequence[Tensor], Training], Step]] = {"sgd": make_sgd, "adam": make_adam}
