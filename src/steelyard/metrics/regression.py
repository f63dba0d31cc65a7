"""Errors of predicted numbers [N, 1], over all examples and per client."""

import torch
from torch import Tensor

from steelyard.metrics.fairness import worst


def squared_errors(predicted: Tensor, targets: Tensor) -> Tensor:
    """The squared error of each example, [N], in float64."""
    return (predicted.squeeze(1).to(torch.float64) - targets.to(torch.float64)).square()


def r2(errors: Tensor, targets: Tensor) -> float:
    """R², the share of the targets' variance that is explained: 1 is perfect, 0 is predicting the mean."""
    variance = targets.to(torch.float64).var(correction=0)
    return float(1 - errors.mean() / variance) if variance > 0 else float("nan")


def client_mse_summary(errors: Tensor) -> dict[str, float]:
    """Mean, standard deviation, worst (largest) tenth and range of the clients' mean squared errors [J]."""
    return {
        "client_mse": float(errors.mean()),
        "client_mse_sd": float(errors.std(correction=0)),
        "client_mse_worst10": -worst(-errors, 0.1),
        "client_mse_min": float(errors.min()),
        "client_mse_max": float(errors.max()),
    }
