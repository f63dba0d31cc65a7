"""Layers whose shapes are not known before their first batch (`LazyLinear`)."""

from torch import nn
from torch.nn.parameter import is_lazy

from steelyard.errors import InputError


def check_initialised(model: nn.Module) -> None:
    """Refuse a model with parameters or buffers that have no shape yet."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    if name := next((name for name, tensor in tensors if is_lazy(tensor)), None):
        raise InputError(
            f"the shape of {name} is not known yet, because its layer is lazy; call the model once on a "
            "batch before you pass it on."
        )
