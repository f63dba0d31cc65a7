"""A model on a client's own data: predictions, and the scores that may leave the site."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from steelyard.client.batch_scoring import BATCH, own_sums
from steelyard.client.learner import Learner
from steelyard.data.examples import AnyExamples
from steelyard.devices import CPU
from steelyard.metrics.accuracy import accuracy_by_mix
from steelyard.metrics.scores import CLASS_SUMS, NO_SUMS, Scores, log_probabilities
from steelyard.metrics.temperature import fit_temperature
from steelyard.seeds import seeded

__all__ = ["BATCH", "Predicted", "own_mix_scores", "predict", "predict_all", "with_temperature"]

Observe = Callable[[Any, Any], None]
"""Called with the outputs and targets of every batch."""


@torch.inference_mode()
def predict(
    model: nn.Module,
    data: AnyExamples,
    seed: int = 0,
    rows: slice = slice(None),
    own_code: bool = True,
    observe: Observe | None = None,
    device: torch.device = CPU,
) -> Tensor:
    """Log-probabilities [N, C] in evaluation mode; for numeric targets, the outputs themselves.

    The model and the batches are on the `device`; what is returned is on the CPU.

    A slice of `rows` that starts at a multiple of 256 gets the same bits as in a prediction of all rows.
    Random layers and transforms draw from the seed and the position of the batch.
    """
    model.eval()
    start, stop, _ = rows.indices(len(data))
    parts = []
    for first in range(start, stop, BATCH):
        with seeded(seed, "predict", first, own_code=own_code, device=device):
            inputs, targets = data.span(first, min(first + BATCH, stop))
            outputs = model(inputs)
            if observe is not None:
                observe(outputs, targets)
            parts.append(outputs if targets.is_floating_point() else log_probabilities(outputs))
    return torch.cat(parts).cpu()


class Predicted(NamedTuple):
    """Predictions on a data set, [N, C], and what each batch adds to the sums of the user's own metrics."""

    outputs: Tensor
    sums: list[NDArray[np.float64]]

    @property
    def own(self) -> NDArray[np.float64]:
        """The sums of the user's own metrics."""
        return np.sum(self.sums, axis=0) if self.sums else NO_SUMS


def predict_all(
    model: nn.Module, learner: Learner, data: AnyExamples, rows: slice = slice(None)
) -> Predicted:
    """Predictions and the sums of own metrics, in one pass over a data set of plain tensors."""
    task, place, sums = learner.task, learner.place, list[NDArray[np.float64]]()

    def observe(outputs: Tensor, targets: Tensor) -> None:
        sums.append(own_sums(task, outputs, targets, len(targets)))

    watch = observe if task.metrics else None
    data = place.examples(data)
    return Predicted(predict(model, data, learner.seed, rows, learner.own_code, watch, place.device), sums)


def own_mix_scores(predicted: Tensor, targets: Tensor, trained: Tensor) -> Scores:
    """Accuracy on a client's test data, weighted by the frequency of each class in its training labels."""
    accuracy = accuracy_by_mix(predicted, targets, torch.bincount(trained))
    return Scores(np.array([1.0, accuracy, 0.0, 0.0, 0.0]), predicted.shape[1])


def with_temperature(scores: Scores, predicted: Tensor, targets: Tensor) -> Scores:
    """Scores on what a client holds out, with the temperature that fits these examples best."""
    values = scores.values.copy()
    values[CLASS_SUMS - 1] = scores.num_examples * math.log(fit_temperature(predicted, targets))
    return scores._replace(values=values)
