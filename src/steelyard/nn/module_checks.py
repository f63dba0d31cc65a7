"""Whether what was given as a model is one, and is ready to be used."""

from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from steelyard.errors import InputError


def check_module(where: str, model: Any) -> None:
    """Refuse anything that is not a module, such as a name, a class, or a function that makes a module."""
    if isinstance(model, nn.Module):
        return
    if isinstance(model, str):
        raise InputError(
            f"{where} must be an nn.Module, not the name {model!r}: `sy.run` and specs know models by name; "
            "the functions in steelyard.nn.zoo make them, such as mlp(input_shape, num_classes)."
        )
    if isinstance(model, type):
        raise InputError(
            f"{where} is the class {model.__name__}, not an object of it: write {model.__name__}(...)."
        )
    raise InputError(f"{where} must be an nn.Module, not an object of type {type(model).__name__}.")


def check_initialised(model: nn.Module) -> None:
    """Refuse a model with layers whose shapes are not known before their first batch (`LazyLinear`)."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    if name := next((name for name, tensor in tensors if is_lazy(tensor)), None):
        raise InputError(
            f"the shape of {name} is not known yet, because its layer is lazy; call the model once on a "
            "batch before you pass it on."
        )
