"""The order in which a model keeps the values of images in memory while it trains and predicts.

On CPUs, convolutions are up to twice as fast if the channels of a pixel are neighbours ("channels last").
What travels, and what a user sees of a model, is the same in both orders; results differ by rounding.
"""

import copy

import torch
from torch import Tensor, nn

from steelyard.client.own_code import has_own_layers
from steelyard.data.batches import leaves, map_tensors
from steelyard.seeds import seeded
from steelyard.settings import MemoryFormat
from steelyard.task import FittedTask

MIN_GROUP_CHANNELS = 4  # per group: torch's GroupNorm of fewer is slow if channels come last


def memory_format_of(model: nn.Module, task: FittedTask, wanted: MemoryFormat) -> torch.memory_format:
    """The order for a model: as wanted or, with "auto", the faster one, by a rule that measures no time.

    Equal models get the same order on all machines. Channels come last in models with 2-d convolutions, with
    two exceptions: a GroupNorm with fewer than four channels per group costs more than the convolutions gain
    (`benchmarks/memory_format.py`), and layers of the user's own may not work, as `x.view(len(x), -1)` does
    not. These are tried on a few examples.
    """
    if wanted == "contiguous" or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return torch.contiguous_format
    if wanted == "auto" and (_has_small_groups(model) or not _works(model, task)):
        return torch.contiguous_format
    return torch.channels_last


def _has_small_groups(model: nn.Module) -> bool:
    norms = (module for module in model.modules() if isinstance(module, nn.GroupNorm))
    return any(norm.num_channels < MIN_GROUP_CHANNELS * norm.num_groups for norm in norms)


def _works(model: nn.Module, task: FittedTask) -> bool:
    """Whether code of the user's own in a model can train and predict if channels come last."""
    if not has_own_layers(model):
        return True
    if task.example is None:
        return False
    copied = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs, targets = task.example
    try:
        with torch.enable_grad(), seeded(0, "check"):
            for training in (True, False):
                given = map_tensors(inputs, Tensor.clone)
                outputs = task.raw(copied.train(training), given, targets if task.has_loss else None)
                parts = [part for _, part in leaves((outputs, task.seen(outputs)))]
                found = [part for part in parts if isinstance(part, Tensor) and part.requires_grad]
                torch.autograd.backward([part.sum() for part in found])
    except Exception:  # if it is not the order, the same happens in training, and is reported there
        return False
    return True
