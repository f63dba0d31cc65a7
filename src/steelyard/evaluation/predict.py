"""Predictions of a model on examples."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.data.examples import AnyExamples

BATCH = 256  # small enough for a CNN's activations to stay in the cache


@torch.inference_mode()
def predict(model: nn.Module, data: AnyExamples) -> Tensor:
    """Log-probabilities [N, C] of a classifier, in evaluation mode."""
    model.eval()
    positions = torch.split(torch.arange(len(data)), BATCH)
    return torch.cat([F.log_softmax(model(data.batch(part)[0]), dim=1) for part in positions])
