"""Gaussians of clients, and their barycentre by a rule, that the tests of barycentres share."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.combining import Combiner
from steelyard.types import Stack

Array = NDArray[np.float64]
EQUAL = torch.tensor([0.5, 0.5], dtype=torch.float64)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def combine(rule: Combiner, means: Tensor, variances: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean, variance = rule.combine(Stack(means, variances), weights)
    assert variance is not None
    return mean, variance


def draw(seed: int, clients: int = 5, size: int = 60, scales: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Means, variances that differ by 10^±scales, and weights."""
    random = np.random.default_rng(seed)
    variances = torch.from_numpy(10 ** random.uniform(-scales, scales, size=(clients, size)))
    weights = torch.from_numpy(random.dirichlet(np.ones(clients)))
    return torch.from_numpy(random.normal(size=(clients, size))), variances, weights


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], rtol: float = 1e-9) -> None:
    """Equal variances, and means that differ by at most a share of the standard deviation."""
    torch.testing.assert_close(found[1], expected[1], rtol=rtol, atol=0.0)
    assert ((found[0] - expected[0]).abs() <= rtol * (expected[1].sqrt() + expected[0].abs())).all()
