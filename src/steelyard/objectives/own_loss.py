"""A loss of the user's own: any function of (outputs, targets), or a loss module of torch."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective, Targets
from steelyard.task import FittedTask

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

    def __post_init__(self) -> None:
        if isinstance(self.function, nn.Module):
            trained = [name for name, each in self.function.named_parameters() if each.requires_grad]
            if trained:
                raise InputError(
                    f"the loss {self.name} has parameters to train ({', '.join(trained)}), but only the "
                    "model is trained; put them into the model, or freeze them with requires_grad_(False)."
                )

    def bind(self, local: Local) -> LocalLoss:
        forward, task = local.forward, local.task
        each = _of_each_example(self.function) if task.plain else None

        def loss(inputs: Any, targets: Any) -> Tensor:
            return self.value(forward(inputs), targets, task)

        def losses(inputs: Any, targets: Any) -> Tensor:
            assert each is not None
            found: Tensor = each(*self._aligned(forward(inputs), targets, task))
            return found

        return LocalLoss(loss, losses=None if each is None else losses)

    def value(self, outputs: Any, targets: Any, task: FittedTask) -> Tensor:
        """The loss of a batch, from the outputs as losses see them."""
        value = self.function(*self._aligned(outputs, targets, task))
        if not isinstance(value, Tensor):
            raise InputError(
                f"the loss {self.name} returned {type(value).__name__}; return a tensor that can be "
                "differentiated."
            )
        return value if value.dim() == 0 else value.mean()

    def _aligned(self, outputs: Any, targets: Any, task: FittedTask) -> tuple[Any, Any]:
        """What the function is called with."""
        tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
        return task.aligned(outputs, targets) if tensors and self._is_of_torch else (outputs, targets)

    @cached_property
    def _is_of_torch(self) -> bool:
        return _is_of_torch(self.function)


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
