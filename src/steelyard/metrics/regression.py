"""How evenly a regression serves the clients."""

from torch import Tensor

from steelyard.metrics.fairness import worst


def client_mse_summary(errors: Tensor) -> dict[str, float]:
    """Mean, standard deviation, worst (largest) tenth and range of the clients' mean squared errors [J]."""
    return {
        "client_mse": float(errors.mean()),
        "client_mse_sd": float(errors.std(correction=0)),
        "client_mse_worst10": -worst(-errors, 0.1),
        "client_mse_min": float(errors.min()),
        "client_mse_max": float(errors.max()),
    }
