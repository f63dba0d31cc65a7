"""How a client steps: torch's optimisers in their functional form.

State is explicit, one fused kernel does a step, and on small models a step costs a quarter of what the
`torch.optim` classes take (`benchmarks/optimizer_step.py`).
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from steelyard.settings import Training

Step = Callable[[], None]
"""Moves the parameters along their gradients; those without a gradient stay."""


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
