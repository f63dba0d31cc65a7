"""A loss of the user's own: any function of (outputs, targets), or a loss module of torch."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective, Targets

CLASS_LOSSES = ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss")
LABEL_LOSSES = ("BCEWithLogitsLoss", "BCELoss", "MultiLabelSoftMarginLoss", "MultiLabelMarginLoss")
NUMBER_LOSSES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss")


@dataclass(frozen=True, eq=False)
class OwnLoss(Objective):
    """Any `loss(outputs, targets)`; `Algorithm(objective=nn.HuberLoss())` makes one.

    A loss module, or a function of torch, gets outputs and targets in the shapes that it expects. Your own
    function gets outputs as the model returns them (of an object with `logits`, these). Losses of several
    examples are averaged.
    """

    function: Callable[[Any, Any], Tensor]

    @property
    def targets(self) -> Targets:
        kinds: dict[Targets, tuple[str, ...]] = {
            "classes": CLASS_LOSSES,
            "labels": LABEL_LOSSES,
            "numbers": NUMBER_LOSSES,
        }
        name = type(self.function).__name__
        return next((kind for kind, names in kinds.items() if name in names), "any")

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def bind(self, local: Local) -> LocalLoss:
        forward, task, aligns = local.forward, local.task, _is_of_torch(self.function)

        def apply(function: Callable[[Any, Any], Tensor], inputs: Any, targets: Any) -> Tensor:
            outputs = forward(inputs)
            tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
            if tensors and aligns:
                outputs, targets = task.aligned(outputs, targets)
            return function(outputs, targets)

        def loss(inputs: Any, targets: Any) -> Tensor:
            value = apply(self.function, inputs, targets)
            if not isinstance(value, Tensor):
                raise InputError(
                    f"the loss {self.name} returned {type(value).__name__}; return a tensor that can be "
                    "differentiated."
                )
            return value if value.dim() == 0 else value.mean()

        each = _of_each_example(self.function) if task.plain else None
        if each is None:
            return LocalLoss(loss)
        return LocalLoss(loss, losses=lambda inputs, targets: apply(each, inputs, targets))


def _is_of_torch(function: object) -> bool:
    """Whether it is a loss module, or a function of torch such as `F.mse_loss`."""
    while isinstance(function, partial):
        function = function.func
    module = str(getattr(function, "__module__", None))
    return isinstance(function, nn.Module) or module.startswith("torch.")


def _of_each_example(function: object) -> nn.Module | None:
    """A module of torch that returns the loss of each example, if its mean is the mean over examples.

    With class weights, torch divides by the sum of the weights in a batch, and with an `ignore_index` by the
    number of examples of the other classes.
    """
    if not isinstance(function, nn.Module) or not type(function).__module__.startswith("torch.nn."):
        return None
    if getattr(function, "reduction", None) != "mean" or getattr(function, "weight", None) is not None:
        return None
    if getattr(function, "ignore_index", -1) >= 0:  # plain targets have no negative class numbers
        return None
    each = copy.deepcopy(function)
    each.reduction = "none"  # type: ignore[assignment]
    return each


def as_objective(value: object) -> object:
    """An objective from a loss function or module; anything else as it is."""
    if isinstance(value, type) and issubclass(value, nn.Module):
        raise InputError(f"give an instance as the objective: {value.__name__}(), not {value.__name__}.")
    if isinstance(value, Objective | type) or not callable(value):
        return value
    return OwnLoss(value)
