"""Copies of a model to work in: one for each worker, whoever's turn it is."""

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from steelyard.layout import Layout, tensors_of
from steelyard.nn.pooling import quicken_pooling
from steelyard.types import State


@dataclass(frozen=True, eq=False)
class WorkingModel:
    """A model to train in, with what every client's work asks of it looked up once."""

    model: nn.Module
    tensors: dict[str, Tensor]
    parameters: list[nn.Parameter]
    """Those that are trained."""
    normalises_batches: bool
    layout: Layout | None = None
    """Where what travels lies in the message, if not every client's model is alike."""
    start: State = field(default_factory=dict)
    """What a client has before its first round."""


def working_model_in(model: nn.Module) -> WorkingModel:
    """Work in this very model."""
    return WorkingModel(
        model,
        tensors_of(model),
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()),
    )


def working_copy_of(model: nn.Module) -> WorkingModel:
    """Work in a copy, changed where CPUs are faster for it; it computes the same, up to rounding."""
    copied = quicken_pooling(copy.deepcopy(model))
    if any(isinstance(module, nn.Conv2d) for module in copied.modules()):
        copied = copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return working_model_in(copied)
