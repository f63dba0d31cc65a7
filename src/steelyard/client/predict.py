"""Predictions of a model on examples."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.data.examples import AnyExamples
from steelyard.seeds import seeded

BATCH = 256  # small enough for a CNN's activations to stay in the cache


@torch.inference_mode()
def predict(model: nn.Module, data: AnyExamples, seed: int = 0, rows: slice = slice(None)) -> Tensor:
    """Log-probabilities [N, C] in evaluation mode; where the targets are numbers, the outputs themselves.

    Some of the `rows`, from the start of a batch, get the same bits as in a prediction of them all; what a
    model or a data set draws at random depends on the seed and the batch.
    """
    model.eval()
    start, stop, _ = rows.indices(len(data))
    parts = []
    for first in range(start, stop, BATCH):
        with seeded(seed, "predict", first):
            inputs, targets = data.span(first, min(first + BATCH, stop))
            outputs = model(inputs)
            parts.append(outputs if targets.is_floating_point() else F.log_softmax(outputs, dim=1))
    return torch.cat(parts)
