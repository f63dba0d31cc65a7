"""Model, loss and metrics are tried on a few examples: what cannot work is refused before the first round."""

import copy
import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.client.batch_scoring import fitted_metrics
from steelyard.data.batches import in_sentence, map_tensors, size_of
from steelyard.errors import InputError
from steelyard.metrics.own import OwnMetrics
from steelyard.objectives.own_loss import OwnLoss
from steelyard.seeds import seeded
from steelyard.task import FittedTask, own_loss, signature_of


@dataclass(frozen=True, eq=False)
class Trial:
    """A model and a batch of a few examples."""

    model: nn.Module
    inputs: Any
    targets: Any
    where: str
    """Whose batch it is."""

    def called(self, task: FittedTask, inputs: Any, targets: Any = None, training: bool = False) -> Any:
        """What a copy of the model returns for a copy of some inputs."""
        model = copy.deepcopy(self.model).train(training)
        with torch.no_grad(), seeded(0, "check"):
            return task.raw(model, map_tensors(inputs, Tensor.clone), targets)

    def outputs(self, task: FittedTask) -> tuple[Any, bool]:
        """What the model returns for this batch, and whether its loss is in it."""
        inputs, targets = self.inputs, self.targets
        try:
            outputs = self.called(task, inputs, targets)
            return outputs, own_loss(outputs) is not None
        except Exception as error:
            if isinstance(inputs, Mapping) and targets is not None and signature_of(self.model).anything:
                with suppress(Exception):  # it takes any names, but not the targets
                    return self.called(task, inputs), False
            raise InputError(
                f"the model cannot take the inputs of {self.where}, {_inputs_in_words(inputs)}: "
                f"{in_sentence(error)}{_advice(task, self.model, inputs)}."
            ) from error


def _advice(task: FittedTask, model: nn.Module, inputs: Any) -> str:
    """What to do about a dict or tuple of inputs that a model does not take."""
    if isinstance(inputs, Tensor) or task.call is not None:
        return ""
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(model.forward).parameters.values()
    takes = ", ".join(stars.get(each.kind, "") + each.name for each in parameters)
    return f"; its forward takes ({takes}): name the inputs so, or give sy.Task(call=...)"


def tried_metrics(task: FittedTask, trial: Trial, shown: Any) -> OwnMetrics:
    """The user's own metrics, with the shapes of their states; refused if they do not work on this batch."""
    if not task.metrics:
        return task.metrics
    if task.targets == "labels":
        task.metrics.check_free(["f1"], "where targets are labels, the record has a score of this name")
    try:
        with torch.inference_mode(), seeded(0, "check"):
            return fitted_metrics(task, shown, trial.targets, size_of(trial.inputs))
    except InputError as error:
        raise InputError(f"{trial.where}: {error}") from error


def try_loss(task: FittedTask, loss: OwnLoss, trial: Trial) -> None:
    """Refuse a loss of the user's own that does not work on what the model returns while it trains."""
    try:
        outputs = task.seen(trial.called(task, trial.inputs, training=True))
    except Exception:  # BatchNorm with one example; a client that cannot train fails by name in a round
        return
    is_float = isinstance(outputs, Tensor) and outputs.is_floating_point()
    with torch.enable_grad(), seeded(0, "check"):
        given = outputs.requires_grad_().clone() if is_float else outputs
        try:
            value = loss.value(given, map_tensors(trial.targets, Tensor.clone), task)
        except InputError as error:
            raise InputError(f"{trial.where}: {error}") from error
        except Exception as error:
            raise InputError(
                f"{trial.where}: the loss {loss.name} failed when it was called with (outputs, targets), "
                f"{described(outputs)} and {described(trial.targets)}: {type(error).__name__}: "
                f"{in_sentence(error)}."
            ) from error
    if is_float and not value.requires_grad:
        raise InputError(
            f"{trial.where}: the loss {loss.name} cannot be differentiated; compute it from the outputs."
        )


def class_dim_of_shorter(task: FittedTask, trial: Trial, shown: Tensor) -> int | None:
    """Where the classes are in predictions with as many classes as tokens, or None if that stays open.

    With inputs that are one token shorter, there are fewer tokens but as many classes.
    """
    size, last = shown.shape[1], shown.dim() - 1
    for dim in range(1, last + 1):
        shorter = map_tensors(trial.inputs, partial(_without_last, dim=dim, size=size))
        try:
            found = task.seen(trial.called(task, shorter)).shape
        except Exception:
            continue
        if len(found) != shown.dim():
            continue
        changed = [place for place in range(1, last + 1) if found[place] != shown.shape[place]]
        if changed in ([1], [last]):
            return -1 if changed == [1] else 1
    return None


def _without_last(values: Tensor, dim: int, size: int) -> Tensor:
    """Without the last of so many entries along a dimension; as it is if it has not so many."""
    fits = values.dim() > dim and values.shape[dim] == size
    return values.narrow(dim, 0, size - 1) if fits else values


def _inputs_in_words(inputs: Any) -> str:
    return f"of shape {tuple(inputs.shape[1:])}" if isinstance(inputs, Tensor) else described(inputs)


def described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {described(each)}" for name, each in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(described, value)) + ")"
    return "nothing" if value is None else type(value).__name__
