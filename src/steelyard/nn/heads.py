"""Body and head: the last linear layer of a classifier, and everything before it."""

from torch import nn

from steelyard.errors import InputError, unknown


def head_name(model: nn.Module, layer: str | None = None) -> str:
    """The name of a model's head: the layer that is named, or the last linear one."""
    if layer is not None:
        modules = [name for name, _ in model.named_modules() if name]
        if layer not in modules:
            raise unknown("layer", layer, modules, of=f"the model {type(model).__name__}")
        return layer
    linear: list[str] = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise InputError(f"the model {type(model).__name__} has no linear layer to share; name its head.")
    return linear[-1]
