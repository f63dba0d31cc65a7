"""A model on a client's own data: predictions, and the scores that may leave the site."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.client.batch_scoring import BATCH
from steelyard.data.examples import AnyExamples
from steelyard.metrics.accuracy import accuracy_by_mix
from steelyard.metrics.scores import CLASS_SUMS, Scores, score
from steelyard.metrics.temperature import fit_temperature
from steelyard.seeds import seeded

__all__ = ["BATCH", "held_out_scores", "own_test_scores", "predict"]

Observe = Callable[[Any, Any], None]
"""Called with the outputs and targets of every batch."""


class Predict(Protocol):
    """Predictions of a client's model on a data set; with `shared`, under the shared form of its head."""

    def __call__(self, data: AnyExamples, shared: bool = False) -> Tensor: ...


@torch.inference_mode()
def predict(
    model: nn.Module,
    data: AnyExamples,
    seed: int = 0,
    rows: slice = slice(None),
    own_code: bool = True,
    observe: Observe | None = None,
) -> Tensor:
    """Log-probabilities [N, C] in evaluation mode; for numeric targets, the outputs themselves.

    A slice of `rows` that starts at a multiple of 256 gets the same bits as in a prediction of all rows.
    Random layers and transforms draw from the seed and the position of the batch.
    """
    model.eval()
    start, stop, _ = rows.indices(len(data))
    parts = []
    for first in range(start, stop, BATCH):
        with seeded(seed, "predict", first, own_code=own_code):
            inputs, targets = data.span(first, min(first + BATCH, stop))
            outputs = model(inputs)
            if observe is not None:
                observe(outputs, targets)
            parts.append(outputs if targets.is_floating_point() else F.log_softmax(outputs, dim=1))
    return torch.cat(parts)


def own_test_scores(
    predict: Predict,
    data: AnyExamples,
    detail: bool,
    labels: Tensor | None = None,
    with_own: Callable[[Scores], Scores] = lambda scores: scores,
) -> dict[str, Scores]:
    """Scores on a client's own test data; `with_own` adds the sums of the user's own metrics.

    `labels` [N], the client's training labels, are given where every client has a model of its own; then its
    accuracy is also scored by its own mix of classes, and under the shared head.
    """
    predicted, targets = predict(data), data.labels
    scores = {"test": with_own(score(predicted, targets, detail))}
    if labels is not None and not targets.is_floating_point():
        mix = accuracy_by_mix(predicted, targets, torch.bincount(labels))
        scores["own_mix"] = Scores(np.array([1.0, mix, 0.0, 0.0, 0.0]), predicted.shape[1])
        scores["shared"] = score(predict(data, shared=True), targets)
    return scores


def held_out_scores(predict: Predict, data: AnyExamples) -> Scores:
    """Scores on what a client holds out; of classes, with the temperature that fits these examples best."""
    predicted = predict(data)
    scores = score(predicted, data.labels)
    if data.labels.is_floating_point():
        return scores
    log_temperature = math.log(fit_temperature(predicted, data.labels))
    scores.values[CLASS_SUMS - 1] = scores.num_examples * log_temperature
    return scores
