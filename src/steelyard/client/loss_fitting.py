"""What is found out about a loss that a model, or the user's own function, computes of a first batch."""

from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.client.batch_scoring import loss_of
from steelyard.client.task_trials import Trial
from steelyard.task import FittedTask, own_loss

LOSS_TOLERANCE = 1e-3  # relative; a model's own loss in float32 against the usual loss
HALF_TOLERANCE = 2e-2  # in bfloat16 or float16


def is_usual_loss(task: FittedTask, trial: Trial, outputs: Any) -> bool:
    """Whether the model's own loss is the usual one for these targets.

    If it is not, predictions and targets do not belong together place by place: a language model predicts
    the next token, and shifts its targets. The losses of a new model may be equal by chance; so the first
    token is also scored alone.
    """
    targets = trial.targets
    if not _has_usual_loss(task, outputs, targets):
        return False
    if task.targets != "classes" or targets.dim() == 1:
        return True
    alone = torch.full_like(targets, task.ignore_index)
    alone[:, 0] = targets[targets != task.ignore_index][0]
    try:
        return _has_usual_loss(task, trial.called(task, trial.inputs, alone), alone)
    except Exception:
        return False


def _has_usual_loss(task: FittedTask, outputs: Any, targets: Tensor) -> bool:
    shown, truth = task.aligned(task.seen(outputs), targets)
    half = shown.dtype in (torch.float16, torch.bfloat16)
    shown = shown.float() if half else shown
    if task.targets == "classes":
        usual = F.cross_entropy(shown, truth, ignore_index=task.ignore_index)
    elif task.targets == "labels":
        usual = F.binary_cross_entropy_with_logits(shown, truth.to(shown.dtype))
    else:
        usual = F.mse_loss(shown, truth.to(shown.dtype))
    found, tolerance = own_loss(outputs), HALF_TOLERANCE if half else LOSS_TOLERANCE
    return found is not None and bool(torch.isclose(found.double(), usual.double(), rtol=tolerance))


def first_counted(task: FittedTask, trial: Trial, outputs: Any) -> int | None:
    """The first place of class numbers [N, T, ...] on which one mean loss depends: `FittedTask.loss_from`.

    At each place, targets that count are ignored, and those that are ignored are counted.
    """
    targets = trial.targets
    if not isinstance(targets, Tensor) or targets.dim() < 2 or targets.is_floating_point():
        return None
    with suppress(Exception):  # other losses need not know of targets to ignore
        before = loss_of(task, outputs, targets)
        for place in range(min(2, targets.shape[1])):
            changed, column = targets.clone(), targets[:, place]
            changed[:, place] = torch.where(column == task.ignore_index, 0, task.ignore_index)
            after = loss_of(task, trial.called(task, trial.inputs, changed), changed)
            if before is None or after is None or before.dim() > 0:
                return None
            if not torch.isclose(before, after, rtol=0, atol=0, equal_nan=True):
                return place
    return None
