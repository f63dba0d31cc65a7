"""What predicted numbers [N, 1] are worth, and how evenly they serve the clients."""

import torch
from torch import Tensor

from steelyard.metrics.fairness import worst


def squared_errors(predicted: Tensor, targets: Tensor) -> Tensor:
    """Of each example, in float64."""
    return (predicted.squeeze(1).to(torch.float64) - targets.to(torch.float64)).square()


def r2(errors: Tensor, targets: Tensor) -> float:
    """The share of the targets' variance that is explained: 1 is perfect, 0 is what their mean would do."""
    variance = targets.to(torch.float64).var(correction=0)
    return float(1 - errors.mean() / variance) if variance > 0 else float("nan")


def client_mse_summary(errors: Tensor) -> dict[str, float]:
    """Mean, spread and tail of the clients' mean squared errors [J]; the worst are the largest."""
    return {
        "client_mse": float(errors.mean()),
        "client_mse_sd": float(errors.std(correction=0)),
        "client_mse_worst10": -worst(-errors, 0.1),
        "client_mse_min": float(errors.min()),
        "client_mse_max": float(errors.max()),
    }
