"""What a model is for, found from its first batch: how it is called, what it returns, and the targets."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from steelyard.client.loss_fitting import first_counted, is_usual_loss
from steelyard.client.task_trials import (
    Trial,
    class_dim_of_shorter,
    described,
    tried_metrics,
    try_loss,
)
from steelyard.errors import InputError
from steelyard.metrics.scores import MAX_OUTPUTS, Kind
from steelyard.objectives.auto import Auto
from steelyard.objectives.base import Objective, Targets
from steelyard.objectives.model_loss import ModelLoss
from steelyard.objectives.own_loss import OwnLoss
from steelyard.task import FittedTask, Task

CHOICES = "sy.Task(targets='classes'), 'labels', 'numbers' or 'loss'"


def fit_task(
    task: Task, model: nn.Module, inputs: Any, targets: Any, objective: Objective, where: str, values: Any
) -> FittedTask:
    """The task with everything found that it left open.

    `where` says whose batch this is; `values` are targets of as many examples as are known.
    """
    trial, own = Trial(model, inputs, targets, where), _own_loss_of(objective)
    fitted = FittedTask(
        plain=False,
        ignore_index=_ignore_index(task, own),
        call=task.call,
        predictions=task.predictions,
        loss=None if own is None else own.function,
        metrics=task.own_metrics,
        given=task,
        example=(inputs, targets),
    )
    outputs, has_loss = trial.outputs(fitted)
    shown = fitted.seen(outputs)
    kind = task.targets or _kind(shown, targets, values, has_loss, objective, where)
    if kind != "loss" and not (isinstance(shown, Tensor) and isinstance(targets, Tensor)):
        raise InputError(
            f"{where}: targets of kind {kind!r} need a tensor of predictions and one of targets, not "
            f"{described(shown)} and {described(targets)}; give sy.Task(predictions=...)."
        )
    if kind == "loss":
        _check_loss(has_loss, objective, where)
    class_dim = _class_dim(fitted, trial, shown, outputs is not shown) if kind == "classes" else 1
    _check_shapes(kind, shown, targets, values, class_dim, where)
    plain = shown is outputs and isinstance(inputs, Tensor) and not task.call and not task.predictions
    found = replace(
        fitted,
        targets=kind,
        class_dim=class_dim,
        outputs=_count_outputs(kind, shown, targets, class_dim),
        has_loss=has_loss,
        plain=plain and not has_loss and _is_simple(kind, shown, targets, fitted.ignore_index),
        wide=kind == "loss" or not isinstance(inputs, Tensor) or (kind == "classes" and targets.dim() > 1),
    )
    if has_loss and not _are_scored_by_place(found, objective, trial, outputs):
        found = replace(found, targets="loss", outputs=0, wide=True)
    if found.targets == "loss":
        found = replace(found, loss_from=first_counted(found, trial, outputs))
    found = replace(found, metrics=tried_metrics(found, trial, shown))
    if own is not None:
        try_loss(found, own, trial)
    objective.check(found)
    return found


def _are_scored_by_place(task: FittedTask, objective: Objective, trial: Trial, outputs: Any) -> bool:
    """Whether predictions of a model that returns its loss belong to the targets place by place.

    They do if the user, or the user's own loss, says so, or if the loss is the usual one. A language model
    shifts its targets.
    """
    if task.targets == "loss" or task.given.targets is not None:
        return True
    is_surely_meant = isinstance(_base_of(objective), OwnLoss) or trial.targets.dim() == 1
    if objective.targets == task.targets and (is_surely_meant or task.targets != "classes"):
        return True
    return is_usual_loss(task, trial, outputs)


def _base_of(objective: Objective) -> Objective:
    """The objective at the bottom of those that wrap each other."""
    while isinstance(base := getattr(objective, "base", None), Objective):
        objective = base
    return objective


def _own_loss_of(objective: Objective) -> OwnLoss | None:
    """The user's own loss at the bottom of an objective, if it is one."""
    base = _base_of(objective)
    return base if isinstance(base, OwnLoss) else None


def _ignore_index(task: Task, own: OwnLoss | None) -> int:
    """The class number that does not count: the task's or, if that says nothing, that of a loss module."""
    given = getattr(own.function, "ignore_index", None) if own is not None else None
    return given if isinstance(given, int) and task.ignore_index == Task.ignore_index else task.ignore_index


def _check_loss(has_loss: bool, objective: Objective, where: str) -> None:
    """Refuse a loss that nothing computes. An objective of the user's own may train without being scored."""
    if not has_loss and type(_base_of(objective)) in (Auto, ModelLoss):
        raise InputError(
            f"{where}: only the loss is to be scored, but the model returns none; return it from the model, "
            "or give a loss function as the objective."
        )


def _check_shapes(kind: Kind, shown: Any, targets: Any, values: Any, class_dim: int, where: str) -> None:
    """Refuse predictions that do not belong to the targets place by place."""
    if kind == "loss":
        return
    if kind == "classes":
        whole = not targets.is_floating_point() and shown.dim() > 1
        fits = whole and shown.movedim(class_dim, -1).shape[:-1] == targets.shape
        advice = _class_numbers_in_words(shown, targets, values)
    else:
        fits, advice = _have_same_size(shown, targets), ""
    if not fits:
        advice = f"make these {advice}" if advice else "give sy.Task(predictions=...) or other targets"
        raise InputError(
            f"{where}: the model returns {described(shown)}, which does not fit targets of kind {kind!r}, "
            f"{described(targets)}; {advice}."
        )


def _have_same_size(shown: Tensor, targets: Tensor) -> bool:
    """Whether each example has as many predictions as targets."""
    same = shown.dim() > 0 and targets.dim() > 0 and shown.numel() == targets.numel()
    return same and len(shown) == len(targets)


def _kind(shown: Any, targets: Any, values: Any, has_loss: bool, objective: Objective, where: str) -> Kind:
    """What the targets are, from the shapes of predictions and targets."""
    own = _own_loss_of(objective) is not None
    tensors = isinstance(shown, Tensor) and isinstance(targets, Tensor)
    soft = tensors and own and objective.targets == "classes" and _are_soft(shown, targets)
    if tensors and not soft:
        found = _kind_of_tensors(shown, targets, values, objective.targets, ours=not own and not has_loss)
        if found is not None:
            return found
    if has_loss or soft or (own and objective.targets == "any"):
        return "loss"
    if targets is None:
        raise InputError(
            f"{where}: its batches have no targets, and the model returns no loss; give (inputs, targets), "
            "or return the loss from the model."
        )
    advice = f"say what they are: {CHOICES}"
    if not isinstance(shown, Tensor):
        advice = "say which part is the prediction: sy.Task(predictions=lambda outputs: ...)"
    elif tensors and (form := _class_numbers_in_words(shown, targets, values)):
        advice = f"if these are class numbers, make them {form}"
    raise InputError(
        f"{where}: the model returns {described(shown)}, and the targets are {described(targets)}; {advice}."
    )


def _are_soft(shown: Tensor, targets: Tensor) -> bool:
    """Whether targets may be probabilities of classes."""
    return targets.is_floating_point() and targets.shape == shown.shape


def _kind_of_tensors(
    shown: Tensor, targets: Tensor, values: Tensor, wanted: Targets, ours: bool
) -> Kind | None:
    """`ours` says that neither the model nor the user has a loss: it is ours to choose."""
    same_size = _have_same_size(shown, targets)
    if shown.dim() == 0:
        return None
    if not targets.is_floating_point():
        if targets.shape in _places(shown) and shown.dim() > 1 and shown.numel() > targets.numel():
            return "classes"
        if same_size and wanted == "numbers":
            return "numbers"
        return "labels" if same_size and are_labels(values) else None
    if not same_size:
        return None
    if wanted in ("labels", "numbers"):
        return wanted
    # One number for each example is a label if it is sometimes 0, sometimes 1, and nothing else.
    one_label = ours and targets.dim() == 1 and bool((values != values[0]).any())
    return "labels" if (targets.dim() > 1 or one_label) and are_labels(values) else "numbers"


def _places(shown: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes that class numbers may have: classes are in dimension 1, or in the last."""
    return tuple(shown.shape[:1] + shown.shape[2:]), tuple(shown.shape[:-1])


def are_labels(targets: Tensor) -> bool:
    return bool(((targets == 0) | (targets == 1)).all())


def _class_numbers_in_words(shown: Tensor, targets: Tensor, values: Tensor) -> str:
    """The form of targets that would be class numbers but for their type, or a dimension of 1; else empty."""
    is_float = targets.is_floating_point()
    is_whole = not is_float or bool((values == values.round()).all())
    if shown.dim() < 2 or shown.numel() <= targets.numel() or not is_whole:
        return ""
    shape = tuple(targets.shape)
    flatter = [shape[:place] + shape[place + 1 :] for place in range(1, len(shape)) if shape[place] == 1]
    fitting = [each for each in ([shape] if is_float else []) + flatter if each in _places(shown)]
    return f"integers of shape [{', '.join(['N', *map(str, fitting[0][1:])])}]" if fitting else ""


def _class_dim(task: FittedTask, trial: Trial, shown: Tensor, from_object: bool) -> int:
    """Where the classes are: 1 as in torch's cross-entropy, or last, as in outputs with `logits`."""
    if task.given.class_dim is not None:
        return task.given.class_dim
    first, last = (tuple(trial.targets.shape) == shape for shape in _places(shown))
    if not (first and last and shown.dim() > 2):
        return 1 if first else -1
    if from_object and task.predictions is None:
        return -1
    found = class_dim_of_shorter(task, trial, shown)
    if found is None:
        raise InputError(
            f"{trial.where}: the model returns {described(shown)}, whose classes may be in dimension 1 or "
            "in the last; give sy.Task(class_dim=1) or sy.Task(class_dim=-1)."
        )
    return found


def _is_simple(kind: Kind, shown: Tensor, targets: Tensor, ignore_index: int) -> bool:
    """Whether every example has one target, and one row of outputs."""
    if not isinstance(targets, Tensor) or targets.dim() != 1 or shown.dim() != 2:
        return False
    if kind == "classes":
        return ignore_index == Task.ignore_index
    return kind == "numbers" and shown.shape[1] == 1 and targets.is_floating_point()


def _count_outputs(kind: Kind, shown: Any, targets: Any, class_dim: int) -> int:
    if kind == "loss":
        return 0
    if kind == "classes":
        return int(shown.shape[class_dim])
    width = shown.numel() // max(len(shown), 1)
    return 1 if kind == "numbers" and width > MAX_OUTPUTS else width
