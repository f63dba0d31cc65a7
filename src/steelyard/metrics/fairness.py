"""How evenly a model serves the clients, from the accuracy on each client's own test data."""

import math

import torch
from torch import Tensor


def fairness(accuracies: Tensor, examples: Tensor) -> dict[str, float]:
    """Mean, spread and tail of the clients' accuracies [J]; `examples` [J] are what each one trains on.

    The mean weighted by them is what the examples are worth together (utilitarian), the plain mean and the
    tail what the clients are (egalitarian).
    """
    weights = examples.to(accuracies.dtype) / examples.sum()
    return {
        "client_accuracy": float(accuracies.mean()),
        "client_accuracy_weighted": float(accuracies @ weights),
        "client_accuracy_sd": float(accuracies.std(unbiased=False)),
        "client_accuracy_worst10": worst(accuracies, 0.1),
        "client_accuracy_min": float(accuracies.min()),
        "client_accuracy_max": float(accuracies.max()),
    }


def worst(accuracies: Tensor, share: float) -> float:
    """The mean over the worst share of clients, at least one."""
    count = max(1, math.floor(share * len(accuracies) + 1e-9))
    return float(torch.sort(accuracies).values[:count].mean())
