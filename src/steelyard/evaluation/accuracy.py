"""Accuracy and negative log-likelihood of predicted log-probabilities [N, C]."""

import torch
import torch.nn.functional as F
from torch import Tensor


def accuracy(log_probabilities: Tensor, targets: Tensor) -> float:
    return float((log_probabilities.argmax(dim=1) == targets).double().mean())


def nll(log_probabilities: Tensor, targets: Tensor) -> float:
    """Mean negative log-likelihood, accumulated in float64."""
    return float(F.nll_loss(log_probabilities.to(torch.float64), targets))
