"""Scores of a model batch by batch: for any kind of inputs, outputs and targets, and for own metrics."""

from collections.abc import Generator
from contextlib import closing, nullcontext
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from steelyard.data.batches import on_cpu, size_of
from steelyard.data.examples import AnyExamples, StreamExamples
from steelyard.devices import CPU, exact
from steelyard.errors import InputError
from steelyard.metrics.calibration import BINS
from steelyard.metrics.own import OwnMetrics
from steelyard.metrics.scores import (
    CLASS_SUMS,
    MAX_CONFUSION,
    Scores,
    label_scores,
    log_probabilities,
    loss_scores,
    number_scores,
    score,
)
from steelyard.seeds import seeded
from steelyard.task import FittedTask, own_loss

BATCH = 256  # small enough for a CNN's activations to stay in the cache
LARGEST_LOGIT = 100.0  # where `BCELoss` cuts off logarithms


def total_scores(parts: list[Scores]) -> Scores:
    """The sum of the scores of several batches, in their order."""
    if not parts:
        raise InputError("the data to score have no batches.")
    return reduce(add, parts)


def scored_at_once(task: FittedTask, batch_size: int) -> int:
    """How many examples a model is called with: 256, or a power of two up to `batch_size`, that of training.

    Outputs of a language model for 256 texts may need more memory than training.
    """
    return min(BATCH, 1 << (batch_size.bit_length() - 1)) if task.wide else BATCH


@torch.inference_mode()
def score_batches(
    model: nn.Module,
    task: FittedTask,
    data: AnyExamples,
    seed: int = 0,
    detail: bool = False,
    temperature: float = 1.0,
    rows: slice = slice(None),
    size: int = BATCH,
    device: torch.device = CPU,
) -> list[Scores]:
    """The scores of each batch of a data set, in evaluation mode; streams are read from beginning to end.

    `size` is that of the batches; it divides 256. A stream may have its own. The model and the batches are on
    the `device`.
    """
    model.eval()
    found = []
    with (
        seeded(seed, "predict", 0, device=device) if isinstance(data, StreamExamples) else nullcontext(),
        closing(_batches(data, seed, rows, size, device)) as batches,  # after an error, too
    ):
        for inputs, targets in batches:
            found.append(score_batch(model, task, inputs, targets, detail, temperature))
    return found


def _batches(
    data: AnyExamples, seed: int, rows: slice, size: int, device: torch.device
) -> Generator[tuple[Any, Any], None, None]:
    """The batches of a data set; random layers and transforms draw from the seed and the batch's position."""
    if isinstance(data, StreamExamples):
        yield from data.passes(size)
        return
    start, stop, _ = rows.indices(len(data))
    for first in range(start, stop, size):
        with seeded(seed, "predict", first, device=device):
            yield data.span(first, min(first + size, stop))


def score_batch(
    model: nn.Module,
    task: FittedTask,
    inputs: Any,
    targets: Any,
    detail: bool = False,
    temperature: float = 1.0,
) -> Scores:
    """The scores of one batch."""
    outputs = task.raw(model, inputs, targets if task.has_loss else None)
    shown, count = task.seen(outputs), size_of(inputs)
    if task.targets == "loss":
        loss = loss_of(task, outputs, targets)
        mean = float("nan") if loss is None else float(loss.mean())
        scores = loss_scores(mean, task.loss_count(targets, count))
    elif task.targets == "classes":
        scores = _class_scores(*flat_classes(task, shown, targets), detail, temperature)
    else:
        rows = len(targets), -1
        kind = label_scores if task.targets == "labels" else number_scores
        scores = kind(_logits(task, shown.cpu()).reshape(rows), targets.cpu().reshape(rows))
    return scores._replace(own=own_sums(task, shown, targets, count)) if task.metrics else scores


def own_sums(task: FittedTask, shown: Any, targets: Any, count: int) -> NDArray[np.float64]:
    """What a batch adds to the sums of the user's own metrics: nothing, if all of its targets are ignored."""
    if all_ignored(task, targets):
        return np.zeros(task.metrics.size)
    shown, targets = on_cpu(shown), on_cpu(targets)  # where the states of metrics are
    return task.metrics.sums(shown, targets, count, partial(_prepared, task, shown, targets))


def fitted_metrics(task: FittedTask, shown: Any, targets: Any, count: int) -> OwnMetrics:
    """The user's own metrics with what a first batch shows of them."""
    if all_ignored(task, targets):
        return task.metrics
    return task.metrics.fitted(shown, targets, count, partial(_prepared, task, shown, targets))


def all_ignored(task: FittedTask, targets: Any) -> bool:
    """Whether a batch has no token, pixel or example that counts."""
    if task.targets not in ("classes", "loss") or not isinstance(targets, Tensor):
        return False
    return not targets.is_floating_point() and bool((targets == task.ignore_index).all())


def loss_of(task: FittedTask, outputs: Any, targets: Any) -> Tensor | None:
    """The loss that is scored where it has no other meaning: that of the model, or the user's own."""
    return own_loss(outputs) if task.loss is None else task.loss(task.seen(outputs), targets)


def _logits(task: FittedTask, shown: Tensor) -> Tensor:
    """Logits of labels, also where the model returns probabilities because its loss wants these."""
    if isinstance(task.loss, nn.BCELoss) or task.loss is F.binary_cross_entropy:
        return shown.double().logit().clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
    return shown


def flat_classes(task: FittedTask, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [M, C] and class numbers [M] of all examples, tokens or pixels that are not ignored."""
    if targets.dim() > 1:
        logits = logits.movedim(task.class_dim, -1).flatten(0, -2)
        targets = targets.flatten()
    counted = targets != task.ignore_index
    return (logits, targets) if bool(counted.all()) else (logits[counted], targets[counted])


def _class_scores(logits: Tensor, targets: Tensor, detail: bool, temperature: float) -> Scores:
    classes = logits.shape[1]
    if len(targets):
        return score(exact(log_probabilities(logits)), exact(targets), detail, temperature)
    confusion = classes * (classes if classes <= MAX_CONFUSION else 2)
    return Scores(np.zeros(CLASS_SUMS + (3 * BINS + confusion if detail else 0)), classes)


def _prepared(task: FittedTask, shown: Any, targets: Any, two_classes: bool) -> tuple[Any, Any]:
    """Probabilities or numbers, and targets, as torchmetrics wants them."""
    if task.targets == "classes":
        logits, truth = flat_classes(task, shown, targets)
        probabilities = logits.softmax(dim=1)
        return (probabilities[:, 1] if two_classes and logits.shape[1] == 2 else probabilities), truth
    if task.targets == "loss":
        return shown, targets
    rows = len(targets), -1
    predicted, truth = shown.reshape(rows), targets.reshape(rows)
    if task.targets == "labels":
        predicted, truth = _logits(task, predicted).sigmoid(), truth.long()
    single = predicted.shape[1] == 1
    return (predicted.squeeze(1), truth.squeeze(1)) if single else (predicted, truth)
