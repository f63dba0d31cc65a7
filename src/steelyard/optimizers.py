"""How a client steps: torch's optimisers in their functional form.

State is explicit, one fused kernel does a step, and on small models a step costs a quarter of what the
`torch.optim` classes take (`benchmarks/optimizer_step.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from steelyard.errors import InputError, unknown

Step = Callable[[], None]
"""Moves the parameters along their gradients; those without a gradient stay."""


@dataclass(frozen=True)
class Training:
    """How a client trains in a round: for `epochs` passes over its data or, if given, for `steps` batches.

    With no steps at all clients reply without training, which shows what everything else costs.
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", str(self.optimizer), OPTIMIZERS)
        for name in ("lr", "batch_size", "epochs"):
            if not getattr(self, name) > 0:
                raise InputError(f"training.{name} must be greater than 0, not {getattr(self, name)}.")
        if self.steps is not None and not self.steps >= 0:
            raise InputError(f"training.steps must be at least 0, not {self.steps}.")
        for name in ("batch_size", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int):
                raise InputError(f"training.{name} must be a whole number, not {value}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"training.momentum must be at least 0 and less than 1, not {self.momentum}.")
        if not self.weight_decay >= 0:
            raise InputError(f"training.weight_decay must be at least 0, not {self.weight_decay}.")


def make_sgd(parameters: Sequence[Tensor], training: Training) -> Step:
    plain = [parameter.detach() for parameter in parameters]
    velocities = [torch.zeros_like(parameter) for parameter in plain]

    def step() -> None:
        used = [place for place, parameter in enumerate(parameters) if parameter.grad is not None]
        sgd(
            [plain[place] for place in used],
            [_dense_gradient(parameters[place]) for place in used],
            [velocities[place] for place in used],
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
    plain = [parameter.detach() for parameter in parameters]
    firsts = [torch.zeros_like(parameter) for parameter in plain]
    seconds = [torch.zeros_like(parameter) for parameter in plain]
    counts = [torch.zeros((), device=parameter.device) for parameter in plain]

    def step() -> None:
        used = [place for place, parameter in enumerate(parameters) if parameter.grad is not None]
        adam(
            [plain[place] for place in used],
            [_dense_gradient(parameters[place]) for place in used],
            [firsts[place] for place in used],
            [seconds[place] for place in used],
            [],
            [counts[place] for place in used],
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


def _dense_gradient(parameter: Tensor) -> Tensor:
    """The fused kernels read memory as it lies: a gradient must lie as its parameter does."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse:
        gradient = gradient.to_dense()
    if gradient.stride() != parameter.stride():
        gradient = torch.empty_like(parameter).copy_(gradient)
    return gradient


OPTIMIZERS: Mapping[str, Callable[[Sequence[Tensor], Training], Step]] = {"sgd": make_sgd, "adam": make_adam}
