"""Accuracy and negative log-likelihood of predicted log-probabilities [N, C]."""

import torch
import torch.nn.functional as F
from torch import Tensor


def accuracy(log_probabilities: Tensor, targets: Tensor) -> float:
    return float((log_probabilities.argmax(dim=1) == targets).double().mean())


def accuracy_by_mix(log_probabilities: Tensor, targets: Tensor, mix: Tensor) -> float:
    """The accuracy if the classes that occur had the relative frequencies `mix` [at most C]."""
    classes = log_probabilities.shape[1]
    correct = (log_probabilities.argmax(dim=1) == targets).double()
    counts = torch.bincount(targets, minlength=classes)
    within = torch.bincount(targets, weights=correct, minlength=classes) / counts.clamp(min=1)
    shares = F.pad(mix.double(), (0, classes - len(mix))) * (counts > 0)
    return float(shares @ within / shares.sum()) if shares.sum() > 0 else float("nan")


def nll(log_probabilities: Tensor, targets: Tensor) -> float:
    """Mean negative log-likelihood, accumulated in float64."""
    return float(F.nll_loss(log_probabilities.to(torch.float64), targets))
