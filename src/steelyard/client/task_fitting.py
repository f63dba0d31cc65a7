"""What a model is for, found from its first batch: how it is called, what it returns, and the targets."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.client.batch_scoring import fitted_metrics
from steelyard.client.loss_fitting import called, first_counted, is_usual_loss
from steelyard.data.batches import in_sentence, size_of
from steelyard.errors import InputError
from steelyard.metrics.own import OwnMetrics
from steelyard.metrics.scores import MAX_OUTPUTS, Kind
from steelyard.objectives.auto import Auto
from steelyard.objectives.base import Objective, Targets
from steelyard.objectives.model_loss import ModelLoss
from steelyard.objectives.own_loss import OwnLoss
from steelyard.seeds import seeded
from steelyard.task import FittedTask, Task, own_loss, signature_of

CHOICES = "sy.Task(targets='classes'), 'labels', 'numbers' or 'loss'"


def fit_task(
    task: Task, model: nn.Module, inputs: Any, targets: Any, objective: Objective, where: str, values: Any
) -> FittedTask:
    """The task with everything found that it left open.

    `where` says whose batch this is; `values` are targets of as many examples as are known.
    """
    fitted = FittedTask(
        plain=False,
        ignore_index=task.ignore_index,
        call=task.call,
        predictions=task.predictions,
        loss=_own_loss_of(objective),
        metrics=task.own_metrics,
        given=task,
    )
    outputs, has_loss = _try(fitted, model, inputs, targets, where)
    shown = fitted.seen(outputs)
    kind = task.targets or _kind(shown, targets, values, has_loss, objective, where)
    _check_kind(kind, shown, targets, has_loss, objective, where)
    class_dim = _class_dim(task, shown, targets, outputs is not shown) if kind == "classes" else 1
    _check_shapes(kind, shown, targets, class_dim, where)
    plain = shown is outputs and isinstance(inputs, Tensor) and not task.call and not task.predictions
    found = replace(
        fitted,
        targets=kind,
        class_dim=class_dim,
        outputs=_count_outputs(kind, shown, targets, class_dim),
        has_loss=has_loss,
        plain=plain and not has_loss and _is_simple(kind, shown, targets, task),
        wide=kind == "loss" or not isinstance(inputs, Tensor) or (kind == "classes" and targets.dim() > 1),
    )
    is_open = has_loss and task.targets is None and kind != "loss"
    if is_open and not is_usual_loss(found, model, inputs, targets, outputs):
        found = replace(found, targets="loss", outputs=0, wide=True)
    if found.targets == "loss":
        found = replace(found, loss_from=first_counted(found, model, inputs, targets, outputs))
    return replace(found, metrics=_fitted_metrics(found, shown, targets, inputs, where))


def _try(task: FittedTask, model: nn.Module, inputs: Any, targets: Any, where: str) -> tuple[Any, bool]:
    """What a copy of the model returns, and whether its loss is in it."""
    try:
        outputs = called(task, model, inputs, targets)
        return outputs, own_loss(outputs) is not None
    except Exception as error:
        if isinstance(inputs, Mapping) and targets is not None and signature_of(model).anything:
            with suppress(Exception):  # it takes any names, but not the targets
                return called(task, model, inputs, None), False
        raise InputError(
            f"the model cannot take the inputs of {where}, {_inputs_in_words(inputs)}: "
            f"{in_sentence(error)}{_advice(task, model, inputs)}."
        ) from error


def _advice(task: FittedTask, model: nn.Module, inputs: Any) -> str:
    """What to do about a dict or tuple of inputs that a model does not take."""
    if isinstance(inputs, Tensor) or task.call is not None:
        return ""
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(model.forward).parameters.values()
    takes = ", ".join(stars.get(each.kind, "") + each.name for each in parameters)
    return f"; its forward takes ({takes}): name the inputs so, or give sy.Task(call=...)"


def _fitted_metrics(task: FittedTask, shown: Any, targets: Any, inputs: Any, where: str) -> OwnMetrics:
    """The user's own metrics, with the shapes of their states; refused if they do not work on this batch."""
    if not task.metrics:
        return task.metrics
    if task.targets == "labels":
        task.metrics.check_free(["f1"], "where targets are labels, the record has a score of this name")
    try:
        with torch.inference_mode(), seeded(0, "check"):
            return fitted_metrics(task, shown, targets, size_of(inputs))
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _own_loss_of(objective: Objective) -> Any:
    """The user's own loss function at the bottom of an objective, if it is one."""
    while isinstance(base := getattr(objective, "base", None), Objective):
        objective = base
    return objective.function if isinstance(objective, OwnLoss) else None


def _check_kind(
    kind: Kind, shown: Any, targets: Any, has_loss: bool, objective: Objective, where: str
) -> None:
    """Refuse predictions and targets that are no tensors, and a loss that nothing computes."""
    if kind != "loss":
        if not (isinstance(shown, Tensor) and isinstance(targets, Tensor)):
            raise InputError(
                f"{where}: targets of kind {kind!r} need a tensor of predictions and one of targets, not "
                f"{_described(shown)} and {_described(targets)}; give sy.Task(predictions=...)."
            )
        return
    while isinstance(base := getattr(objective, "base", None), Objective):
        objective = base
    if not has_loss and type(objective) in (Auto, ModelLoss):  # others may train without being scored
        raise InputError(
            f"{where}: only the loss is to be scored, but the model returns none; return it from the model, "
            "or give a loss function as the objective."
        )


def _check_shapes(kind: Kind, shown: Any, targets: Any, class_dim: int, where: str) -> None:
    """Refuse predictions that do not belong to the targets place by place."""
    if kind == "loss":
        return
    if kind == "classes":
        whole = not targets.is_floating_point() and shown.dim() > 1
        fits = whole and shown.movedim(class_dim, -1).shape[:-1] == targets.shape
    else:
        fits = _have_same_size(shown, targets)
    if not fits:
        raise InputError(
            f"{where}: the model returns {_described(shown)}, which does not fit targets of kind {kind!r}, "
            f"{_described(targets)}; give sy.Task(predictions=...) or other targets."
        )


def _have_same_size(shown: Tensor, targets: Tensor) -> bool:
    """Whether each example has as many predictions as targets."""
    return shown.dim() > 0 and shown.numel() == targets.numel() and len(shown) == len(targets)


def _kind(shown: Any, targets: Any, values: Any, has_loss: bool, objective: Objective, where: str) -> Kind:
    """What the targets are, from the shapes of predictions and targets."""
    own = _own_loss_of(objective)
    tensors = isinstance(shown, Tensor) and isinstance(targets, Tensor)
    soft = tensors and targets.is_floating_point() and objective.targets == "classes" and own is not None
    if tensors and not soft:  # soft: probabilities of classes
        found = _kind_of_tensors(shown, targets, values, objective.targets)
        if found is not None:
            return found
    if has_loss or soft or (own is not None and objective.targets == "any"):
        return "loss"
    if targets is None:
        raise InputError(
            f"{where}: its batches have no targets, and the model returns no loss; give (inputs, targets), "
            "or return the loss from the model."
        )
    raise InputError(
        f"{where}: the model returns {_described(shown)}, and the targets are {_described(targets)}; say "
        f"what they are: {CHOICES}."
    )


def _kind_of_tensors(shown: Tensor, targets: Tensor, values: Tensor, wanted: Targets) -> Kind | None:
    same_size = _have_same_size(shown, targets)
    if shown.dim() == 0:
        return None
    if not targets.is_floating_point():
        places = (shown.shape[:1] + shown.shape[2:], shown.shape[:-1])
        if targets.shape in places and shown.dim() > 1 and shown.numel() > targets.numel():
            return "classes"
        if same_size and wanted == "numbers":
            return "numbers"
        return "labels" if same_size and _are_labels(values) else None
    if not same_size:
        return None
    if wanted in ("labels", "numbers"):
        return wanted
    return "labels" if targets.dim() > 1 and _are_labels(values) else "numbers"


def _are_labels(targets: Tensor) -> bool:
    return bool(((targets == 0) | (targets == 1)).all())


def _class_dim(task: Task, shown: Tensor, targets: Tensor, from_object: bool) -> int:
    """Where the classes are: 1 as in torch's cross-entropy, or last, as in outputs with `logits`."""
    first, last = shown.shape[2:] == targets.shape[1:], shown.shape[:-1] == targets.shape
    if task.class_dim is not None:
        return task.class_dim
    if first and last and shown.dim() > 2:
        return -1 if from_object else 1
    return 1 if first else -1


def _is_simple(kind: Kind, shown: Tensor, targets: Tensor, task: Task) -> bool:
    """Whether every example has one target, and one row of outputs."""
    if not isinstance(targets, Tensor) or targets.dim() != 1 or shown.dim() != 2:
        return False
    if kind == "classes":
        return task.ignore_index == Task.ignore_index
    return kind == "numbers" and shown.shape[1] == 1 and targets.is_floating_point()


def _count_outputs(kind: Kind, shown: Any, targets: Any, class_dim: int) -> int:
    if kind == "loss":
        return 0
    if kind == "classes":
        return int(shown.shape[class_dim])
    width = shown.numel() // max(len(shown), 1)
    return 1 if kind == "numbers" and width > MAX_OUTPUTS else width


def _inputs_in_words(inputs: Any) -> str:
    return f"of shape {tuple(inputs.shape[1:])}" if isinstance(inputs, Tensor) else _described(inputs)


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_described(each)}" for name, each in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_described, value)) + ")"
    return "nothing" if value is None else type(value).__name__
