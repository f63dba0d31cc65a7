"""How much accuracy differs between clients, measured on each client's own test data."""

import math

import torch
from torch import Tensor


def fairness(accuracies: Tensor, examples: Tensor) -> dict[str, float]:
    """Mean, standard deviation, worst tenth and range of the clients' accuracies [J].

    `examples` [J] are the numbers of training examples. The mean weighted by them counts every example
    equally (utilitarian); the plain mean and the worst tenth count every client equally (egalitarian).
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
    """The mean over the clients with the lowest accuracies: this share of them, at least one."""
    count = max(1, math.floor(share * len(accuracies) + 1e-9))
    return float(torch.sort(accuracies).values[:count].mean())
