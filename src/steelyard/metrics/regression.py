"""How evenly a model serves the clients, by errors or losses: smaller is better."""

from torch import Tensor

from steelyard.metrics.fairness import worst


def client_error_summary(errors: Tensor, name: str = "mse") -> dict[str, float]:
    """Mean, standard deviation, worst (largest) tenth and range of the clients' errors or losses [J]."""
    return {
        f"client_{name}": float(errors.mean()),
        f"client_{name}_sd": float(errors.std(correction=0)),
        f"client_{name}_worst10": -worst(-errors, 0.1),
        f"client_{name}_min": float(errors.min()),
        f"client_{name}_max": float(errors.max()),
    }
