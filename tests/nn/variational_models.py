"""A small model and different σ for its weights, that the tests of Bayesian layers and models share."""

import math

import torch
from torch import nn

from steelyard.nn.variational import gaussians


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def scatter(model: nn.Module, seed: int = 0, center: float = 0.3) -> nn.Module:
    """Different σ for each weight, about `center`."""
    for each in gaussians(model):
        log_sigma = math.log(center) + 0.5 * torch.randn(each.log_sigma.shape, generator=random(seed))
        each.log_sigma.data.copy_(log_sigma / float(each.log_sigma_lr_scale))
    return model
