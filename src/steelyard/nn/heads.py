"""The head of a classifier: its last linear layer, or a named one. Everything else is the body."""

from torch import nn

from steelyard.errors import InputError, unknown


def head_name(model: nn.Module, layer: str | None = None) -> str:
    """The name of a model's head: `layer` if given, otherwise the last linear layer."""
    if layer is not None:
        modules = [name for name, _ in model.named_modules() if name]
        if layer not in modules:
            raise unknown("layer", layer, modules, of=f"the model {type(model).__name__}")
        return layer
    linear: list[str] = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise InputError(f"the model {type(model).__name__} has no linear layer; give the name of its head.")
    return linear[-1]
