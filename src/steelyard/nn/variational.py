"""Layers whose weights are independent Gaussians (mean-field variational inference, Graves 2011).

The layers sample their outputs instead of their weights (local reparameterisation, Kingma et al. 2015): the
outputs of an example are Gaussian with mean op(x, μ) and variance op(x², σ²). This makes gradients less
noisy, because each example has its own sample. For convolutions it ignores the correlation between
neighbouring output positions.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.errors import InputError

MIN_OUTPUT_VARIANCE, MAX_OUTPUT_VARIANCE = 1e-24, 1e30  # √variance and its gradient are finite in float32
LOG_SIGMA, LR_SCALE = "_log_sigma", "log_sigma_lr_scale"  # names of a layer's parameters and of its buffer


class Draws:
    """Counts samples: `samples` to average over in a prediction, `next` to draw in the next Bayesian layer.

    The first Bayesian layer draws all samples, so the layers before it run once per example.
    """

    def __init__(self, samples: int) -> None:
        self.samples, self.next = samples, 1

    def begin(self, model: nn.Module, inputs: Any) -> None:
        """Forward pre-hook of the model."""
        self.next = 1 if model.training else self.samples

    def take(self) -> int:
        count, self.next = self.next, 1
        return count

    def average(self, model: nn.Module, inputs: Any, logits: Tensor) -> Tensor:
        """Forward hook of the model: log mean softmax [B, C] of logits [S·B, C]."""
        if model.training:
            return logits
        count = self.samples if self.next == 1 else 1  # 1: no Bayesian layer has run
        drawn = logits.log_softmax(dim=1).view(count, -1, logits.shape[1])
        return drawn.logsumexp(dim=0) - math.log(count)


class Variational(nn.Module, ABC):
    """A layer with a Gaussian N(μ, σ²) for each weight: μ is `weight`, σ = exp(scale · `weight_log_sigma`).

    The scale is the buffer `log_sigma_lr_scale`: the learning rate of log σ relative to that of μ. Adam moves
    every parameter by about the learning rate per step, however small its gradient is. With a scale of 1, σ
    reaches the prior within an epoch or two. With 0.1, log σ moves at a tenth of the learning rate (with
    plain SGD at scale² = a hundredth). Do not use weight decay: it would pull σ to 1.
    """

    weight: Tensor
    bias: Any  # a tensor or None; torch annotates it differently in each layer
    weight_log_sigma: nn.Parameter
    bias_log_sigma: nn.Parameter | None
    log_sigma_lr_scale: Tensor
    draws: Draws | None

    def make_bayesian(self, sigma: float, log_sigma_lr_scale: float) -> None:
        """Make a point-valued layer Bayesian, in place: its weights become means."""
        log_sigma = math.log(sigma) / log_sigma_lr_scale
        self.weight_log_sigma = nn.Parameter(torch.full_like(self.weight, log_sigma))
        bias = None if self.bias is None else nn.Parameter(torch.full_like(self.bias, log_sigma))
        self.register_parameter("bias_log_sigma", bias)
        scale = self.weight.new_tensor(log_sigma_lr_scale, requires_grad=False)
        self.register_buffer(LR_SCALE, scale, persistent=False)
        self.draws = None

    @abstractmethod
    def transform(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's output for the given weights."""

    def forward(self, input: Tensor) -> Tensor:
        twice = 2 * self.log_sigma_lr_scale
        bias_variance = None if self.bias_log_sigma is None else (twice * self.bias_log_sigma).exp()
        variance = self.transform(input.square(), (twice * self.weight_log_sigma).exp(), bias_variance)
        deviation = variance.clamp(MIN_OUTPUT_VARIANCE, MAX_OUTPUT_VARIANCE).sqrt()
        mean = self.transform(input, self.weight, self.bias)
        count = 1 if self.draws is None else self.draws.take()
        if count == 1:
            return torch.addcmul(mean, deviation, torch.randn_like(mean))
        noise = torch.randn(count, *mean.shape, dtype=mean.dtype, device=mean.device)
        return torch.addcmul(mean, deviation, noise).flatten(0, 1)


class VariationalLinear(Variational, nn.Linear):
    """`nn.Linear` with Gaussian weights. A call draws one sample; `averaged` averages over many."""

    def __init__(
        self, *args: Any, sigma: float = 0.03, log_sigma_lr_scale: float = 0.1, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.make_bayesian(sigma, log_sigma_lr_scale)

    def transform(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(input, weight, bias)


class VariationalConv2d(Variational, nn.Conv2d):
    """`nn.Conv2d` with Gaussian weights. A call draws one sample; `averaged` averages over many."""

    def __init__(
        self, *args: Any, sigma: float = 0.03, log_sigma_lr_scale: float = 0.1, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.make_bayesian(sigma, log_sigma_lr_scale)

    def transform(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output: Tensor = self._conv_forward(input, weight, bias)
        return output


def bayesian(
    model: nn.Module, last: int = 3, sigma: float = 0.03, log_sigma_lr_scale: float = 0.1, samples: int = 10
) -> nn.Module:
    """A copy of a classifier whose last linear layers are Bayesian, with the old weights as means (BA-BFL).

    In training mode the copy returns the logits of one sample. In evaluation mode it returns
    log-probabilities, averaged over `samples` samples. It works for classifiers only, because it averages
    probabilities. With `last=0` it is a plain copy. Train it with the objective `Elbo`.
    """
    if last < 0:
        raise InputError(f"last must be a number of layers, at least 0, not {last}.")
    for name, value in (("sigma", sigma), ("log_sigma_lr_scale", log_sigma_lr_scale)):
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be a number greater than 0, not {value}.")
    if samples < 1:
        raise InputError(f"samples must be at least 1, not {samples}.")
    copied = copy.deepcopy(model)
    if last == 0:
        return copied
    if gaussians(copied):
        raise InputError("the model already has Bayesian layers; pass the plain model instead.")
    linear = [module for module in copied.modules() if type(module) is nn.Linear]
    if last > len(linear):
        raise InputError(f"the last {last} linear layers cannot be Bayesian: the model has {len(linear)}.")
    for layer in linear[-last:]:
        layer.__class__ = VariationalLinear
        assert isinstance(layer, VariationalLinear)
        layer.make_bayesian(sigma, log_sigma_lr_scale)
    return averaged(copied, samples)


def averaged(model: nn.Module, samples: int = 10) -> nn.Module:
    """Make a classifier with Bayesian layers average its predictions over many samples, in place.

    In evaluation mode, the batch holds `samples` copies of each example from the first Bayesian layer on.
    Later layers must not use tensors from before it (no skip connections across it).
    """
    draws = Draws(samples)
    for layer in variational_layers(model).values():
        layer.draws = draws
    model.register_forward_pre_hook(draws.begin)  # methods, because closures cannot be copied or pickled
    model.register_forward_hook(draws.average)
    return model


def point_valued(model: nn.Module) -> nn.Module:
    """Turn a model's Bayesian layers into plain ones with the means as weights, in place."""
    for layer in variational_layers(model).values():
        layer.__class__ = nn.Linear if isinstance(layer, nn.Linear) else nn.Conv2d  # type: ignore[assignment]
    return model


class Gaussian(NamedTuple):
    """The posterior of one weight or bias tensor."""

    mean: Tensor
    log_sigma: Tensor
    log_sigma_lr_scale: Tensor

    @property
    def log_variance(self) -> Tensor:
        return 2 * self.log_sigma_lr_scale * self.log_sigma


def variational_layers(model: nn.Module) -> dict[str, Variational]:
    """A model's Bayesian layers by name."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, Variational)}


def gaussians(model: nn.Module) -> list[Gaussian]:
    """The posteriors of a model's Bayesian weights and biases."""
    posteriors = []
    for layer in variational_layers(model).values():
        posteriors.append(Gaussian(layer.weight, layer.weight_log_sigma, layer.log_sigma_lr_scale))
        if layer.bias is not None and layer.bias_log_sigma is not None:
            posteriors.append(Gaussian(layer.bias, layer.bias_log_sigma, layer.log_sigma_lr_scale))
    return posteriors


def log_sigma_names(model: nn.Module) -> dict[str, str]:
    """The names of a model's log σ parameters, by the names of their means."""
    layers = variational_layers(model).items()
    names = [name for prefix, layer in layers for name, _ in layer.named_parameters(prefix, recurse=False)]
    return {name.removesuffix(LOG_SIGMA): name for name in names if name.endswith(LOG_SIGMA)}


def posterior_of(name: str, tensors: Mapping[str, Tensor]) -> Gaussian | None:
    """The posterior of the parameter `name`, given a model's tensors by name; None if it is point-valued."""
    log_sigma = tensors.get(name + LOG_SIGMA)
    scale = tensors.get(name[: name.rfind(".") + 1] + LR_SCALE)
    return None if log_sigma is None or scale is None else Gaussian(tensors[name], log_sigma, scale)


def kl(model: nn.Module, prior: nn.Module | None = None) -> Tensor:
    """KL(q‖p) = ½ Σ [σ²/s² − 1 − log σ²/s² + (μ − m)²/s²] over all Bayesian weights and biases.

    The prior p = N(m, s²) is N(0, 1), or the posterior of another model with the same layers.
    """
    posteriors = gaussians(model)
    priors = [None] * len(posteriors) if prior is None else gaussians(prior)
    total = torch.zeros(())
    for q, p in zip(posteriors, priors, strict=True):
        log_ratio = q.log_variance if p is None else q.log_variance - p.log_variance
        distance = q.mean.square()
        if p is not None:
            distance = (q.mean - p.mean).square() * (-p.log_variance).exp()
        total = total + (log_ratio.expm1() - log_ratio + distance).sum() / 2
    return total
