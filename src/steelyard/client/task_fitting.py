"""What a model is for, found from its first batch: how it is called, what it returns, and the targets."""

import copy
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.metrics.scores import MAX_OUTPUTS, Kind
from steelyard.objectives.base import Objective, Targets
from steelyard.objectives.own_loss import OwnLoss
from steelyard.seeds import seeded
from steelyard.task import FittedTask, Task, own_loss

CHOICES = "sy.Task(targets='classes'), 'labels', 'numbers' or 'loss'"
LOSS_TOLERANCE = 1e-3  # relative; a model's own loss in float32 against the usual loss


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
    if kind != "loss" and not (isinstance(shown, Tensor) and isinstance(targets, Tensor)):
        raise InputError(
            f"{where}: targets of kind {kind!r} need a tensor of predictions and one of targets, not "
            f"{_described(shown)} and {_described(targets)}; give sy.Task(predictions=...)."
        )
    class_dim = _class_dim(task, shown, targets, outputs is not shown) if kind == "classes" else 1
    plain = shown is outputs and isinstance(inputs, Tensor) and not task.call and not task.predictions
    found = replace(
        fitted,
        targets=kind,
        class_dim=class_dim,
        outputs=_count_outputs(kind, shown, targets, class_dim),
        has_loss=has_loss,
        plain=plain and not has_loss and _is_simple(kind, shown, targets),
    )
    if has_loss and task.targets is None and kind != "loss" and not _is_usual_loss(found, outputs, targets):
        return replace(found, targets="loss", outputs=0)
    return found


def _try(task: FittedTask, model: nn.Module, inputs: Any, targets: Any, where: str) -> tuple[Any, bool]:
    """What a copy of the model returns, and whether its loss is in it."""
    model = copy.deepcopy(model).eval()
    try:
        with torch.inference_mode(), seeded(0, "check"):
            outputs = task.raw(model, inputs, targets)
    except Exception as error:
        raise InputError(
            f"the model cannot take the inputs of {where}, {_inputs_in_words(inputs)}: {error}"
        ) from error
    return outputs, own_loss(outputs) is not None


def _own_loss_of(objective: Objective) -> Any:
    """The user's own loss function at the bottom of an objective, if it is one."""
    while isinstance(base := getattr(objective, "base", None), Objective):
        objective = base
    return objective.function if isinstance(objective, OwnLoss) else None


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
    same_size = shown.numel() == targets.numel() and len(shown) == len(targets)
    if shown.dim() == 0:
        return None
    if not targets.is_floating_point():
        if shown.dim() == targets.dim() + 1 and shown.numel() > targets.numel():
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


def _is_simple(kind: Kind, shown: Tensor, targets: Tensor) -> bool:
    """Whether every example has one target, and one row of outputs."""
    if not isinstance(targets, Tensor) or targets.dim() != 1 or shown.dim() != 2:
        return False
    return kind == "classes" or (kind == "numbers" and shown.shape[1] == 1 and targets.is_floating_point())


def _count_outputs(kind: Kind, shown: Any, targets: Any, class_dim: int) -> int:
    if kind == "loss":
        return 0
    if kind == "classes":
        return int(shown.shape[class_dim])
    width = shown.numel() // max(len(shown), 1)
    return 1 if kind == "numbers" and width > MAX_OUTPUTS else width


def _is_usual_loss(task: FittedTask, outputs: Any, targets: Tensor) -> bool:
    """Whether the model's own loss is the usual one for these targets.

    If it is not, predictions and targets do not belong together place by place: a language model predicts
    the next token, and shifts its targets.
    """
    shown, truth = task.aligned(task.seen(outputs), targets)
    if task.targets == "classes":
        usual = F.cross_entropy(shown, truth, ignore_index=task.ignore_index)
    elif task.targets == "labels":
        usual = F.binary_cross_entropy_with_logits(shown, truth)
    else:
        usual = F.mse_loss(shown, truth)
    found = own_loss(outputs)
    return found is not None and bool(torch.isclose(found.double(), usual.double(), rtol=LOSS_TOLERANCE))


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
