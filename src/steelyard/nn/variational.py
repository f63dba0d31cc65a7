"""Layers whose weights are independent Gaussians (mean-field variational inference, Graves 2011).

Not the weights are drawn but the outputs (local reparameterisation, Kingma et al. 2015): those of an example
are Gaussian with mean op(x, μ) and variance op(x², σ²). Gradients are less noisy so, because examples do not
share a draw. Of a convolution's outputs, the correlation between neighbouring positions is left out.
"""

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.errors import InputError

LEAST, MOST = 1e-24, 1e30  # of an output's variance: between them, the root and its slope are finite


class Draws:
    """How many draws a prediction averages, and how many the next Bayesian layer has to make of each example.

    The first Bayesian layer that runs makes them all, so what comes before it runs once.
    """

    def __init__(self, samples: int) -> None:
        self.samples, self.next = samples, 1

    def begin(self, model: nn.Module, inputs: Any) -> None:
        """Before the model runs."""
        self.next = 1 if model.training else self.samples

    def take(self) -> int:
        count, self.next = self.next, 1
        return count

    def average(self, model: nn.Module, inputs: Any, logits: Tensor) -> Tensor:
        """After it has run: log mean softmax [B, C] of logits [S·B, C]."""
        if model.training:
            return logits
        count = self.samples if self.next == 1 else 1  # no Bayesian layer has run
        drawn = logits.log_softmax(dim=1).view(count, -1, logits.shape[1])
        return drawn.logsumexp(dim=0) - math.log(count)


class Variational(nn.Module, ABC):
    """A layer with a Gaussian N(μ, σ²) for each weight: μ in `weight`, σ = exp(pace · `weight_spread`).

    Adam moves every parameter by about the learning rate in a step, however small its gradient; with pace 1,
    σ runs to the prior in an epoch or two. With pace 0.1, log σ moves at a tenth of the rate (with plain SGD,
    whose steps shrink with the gradient too, at pace² = a hundredth). Weight decay would pull σ to 1.
    """

    weight: Tensor
    bias: Any  # a tensor or None; torch's layers say it differently
    weight_spread: nn.Parameter
    bias_spread: nn.Parameter | None
    pace: Tensor
    draws: Draws | None

    def spread(self, sigma: float, pace: float) -> None:
        """Make a point-valued layer Bayesian, in place: its weights become means."""
        level = math.log(sigma) / pace
        self.weight_spread = nn.Parameter(torch.full_like(self.weight, level))
        bias = None if self.bias is None else nn.Parameter(torch.full_like(self.bias, level))
        self.register_parameter("bias_spread", bias)
        self.register_buffer("pace", self.weight.new_tensor(pace, requires_grad=False), persistent=False)
        self.draws = None

    @abstractmethod
    def transform(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What the layer computes with known weights."""

    def forward(self, input: Tensor) -> Tensor:
        twice = 2 * self.pace
        bias_variance = None if self.bias_spread is None else (twice * self.bias_spread).exp()
        variance = self.transform(input.square(), (twice * self.weight_spread).exp(), bias_variance)
        deviation = variance.clamp(LEAST, MOST).sqrt()
        mean = self.transform(input, self.weight, self.bias)
        count = 1 if self.draws is None else self.draws.take()
        if count == 1:
            return torch.addcmul(mean, deviation, torch.randn_like(mean))
        noise = torch.randn(count, *mean.shape, dtype=mean.dtype, device=mean.device)
        return torch.addcmul(mean, deviation, noise).flatten(0, 1)


class VariationalLinear(Variational, nn.Linear):
    """`nn.Linear` with Gaussian weights. By itself, every call is one draw; see `bayesian` and `averaged`."""

    def __init__(self, *args: Any, sigma: float = 0.03, pace: float = 0.1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spread(sigma, pace)

    def transform(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(input, weight, bias)


class VariationalConv2d(Variational, nn.Conv2d):
    """`nn.Conv2d` with Gaussian weights. By itself, every call is one draw; see `averaged`."""

    def __init__(self, *args: Any, sigma: float = 0.03, pace: float = 0.1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spread(sigma, pace)

    def transform(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output: Tensor = self._conv_forward(input, weight, bias)
        return output


def bayesian(
    model: nn.Module, last: int = 3, sigma: float = 0.03, pace: float = 0.1, samples: int = 10
) -> nn.Module:
    """A copy of a classifier whose last linear layers are Bayesian, with the old weights as means (BA-BFL).

    In training mode it returns the logits of one draw; in evaluation mode log-probabilities, averaged over
    `samples` draws. It is for classifiers: of numbers to be met, the outputs would have to be averaged.
    With `last=0` it is a plain copy. Train it with the objective `Elbo`.
    """
    if last < 0:
        raise InputError(f"last is a number of layers, at least 0, not {last}.")
    for name, value in (("sigma", sigma), ("pace", pace)):
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be a number greater than 0, not {value}.")
    if samples < 1:
        raise InputError(f"samples must be at least 1, not {samples}.")
    copied = copy.deepcopy(model)
    if last == 0:
        return copied
    if gaussians(copied):
        raise InputError("the model has Bayesian layers already; give the one that it was made from.")
    found = [module for module in copied.modules() if type(module) is nn.Linear]
    if last > len(found):
        raise InputError(f"the last {last} linear layers cannot be Bayesian: the model has {len(found)}.")
    for layer in found[-last:]:
        layer.__class__ = VariationalLinear
        assert isinstance(layer, VariationalLinear)
        layer.spread(sigma, pace)
    return averaged(copied, samples)


def averaged(model: nn.Module, samples: int = 10) -> nn.Module:
    """Let a classifier with Bayesian layers, this very model, average its predictions over many draws.

    Between its first Bayesian layer and its outputs it may not look back at what came before.
    """
    draws = Draws(samples)
    for layer in variational_layers(model).values():
        layer.draws = draws
    model.register_forward_pre_hook(draws.begin)  # methods, not closures: they can be copied and pickled
    model.register_forward_hook(draws.average)
    return model


def point_valued(model: nn.Module) -> nn.Module:
    """Let a model's Bayesian layers, in this very model, be plain ones with the means for weights."""
    for layer in variational_layers(model).values():
        layer.__class__ = nn.Linear if isinstance(layer, nn.Linear) else nn.Conv2d  # type: ignore[assignment]
    return model


class Gaussian(NamedTuple):
    """The posterior of one tensor of weights."""

    mean: Tensor
    spread: Tensor
    pace: Tensor

    @property
    def log_variance(self) -> Tensor:
        return 2 * self.pace * self.spread


def variational_layers(model: nn.Module) -> dict[str, Variational]:
    """A model's Bayesian layers by name."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, Variational)}


def gaussians(model: nn.Module) -> list[Gaussian]:
    """The posteriors of a model's Bayesian weights and biases."""
    found = []
    for layer in variational_layers(model).values():
        found.append(Gaussian(layer.weight, layer.weight_spread, layer.pace))
        if layer.bias is not None and layer.bias_spread is not None:
            found.append(Gaussian(layer.bias, layer.bias_spread, layer.pace))
    return found


def kl(model: nn.Module, prior: nn.Module | None = None) -> Tensor:
    """KL(q‖p) = ½ Σ [σ²/s² − 1 − log σ²/s² + (μ − m)²/s²] over all Bayesian weights and biases.

    The prior N(m, s²) is N(0, 1), or the posterior of another model of the same kind.
    """
    posteriors = gaussians(model)
    priors = [None] * len(posteriors) if prior is None else gaussians(prior)
    total = torch.zeros(())
    for ours, other in zip(posteriors, priors, strict=True):
        ratio = ours.log_variance if other is None else ours.log_variance - other.log_variance
        distance = ours.mean.square()
        if other is not None:
            distance = (ours.mean - other.mean).square() * (-other.log_variance).exp()
        total = total + (ratio.expm1() - ratio + distance).sum() / 2
    return total
