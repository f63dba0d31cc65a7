"""Working models: a copy of a model in which clients are trained and evaluated, one after the other."""

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from steelyard.layout import Layout, tensors_of
from steelyard.nn.pooling import quicken_pooling
from steelyard.types import State


@dataclass(frozen=True, eq=False)
class WorkingModel:
    """A model to train and predict in, with its tensors and layout looked up once."""

    model: nn.Module
    tensors: dict[str, Tensor]
    parameters: list[nn.Parameter]
    """The trainable ones."""
    normalises_batches: bool
    layout: Layout | None = None
    """The layout of what travels, where models differ between clients."""
    start: State = field(default_factory=dict)
    """The private state of a client before its first round."""


def working_model_in(model: nn.Module) -> WorkingModel:
    """A working model that uses this module itself."""
    return WorkingModel(
        model,
        tensors_of(model),
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()),
    )


def working_copy_of(model: nn.Module) -> WorkingModel:
    """A working model in a copy, with layers and memory layout that are faster on CPUs.

    It computes the same as the model, up to rounding.
    """
    copied = quicken_pooling(copy.deepcopy(model))
    if any(isinstance(module, nn.Conv2d) for module in copied.modules()):
        copied = copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return working_model_in(copied)
