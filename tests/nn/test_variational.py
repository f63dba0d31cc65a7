"""Bayesian layers: their KL, and outputs with the moments of layers with drawn weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from variational_models import network, random, scatter

from steelyard.nn.variational import (
    Variational,
    VariationalConv2d,
    VariationalLinear,
    bayesian,
    gaussians,
    kl,
)

CLOSE = 5.0  # standard errors


def normals(model: nn.Module) -> list[Normal]:
    return [Normal(each.mean, (each.log_sigma_lr_scale * each.log_sigma).exp()) for each in gaussians(model)]


# The KL


def two_models() -> tuple[nn.Module, nn.Module]:
    one = scatter(bayesian(network().double(), last=2, log_sigma_lr_scale=0.4))
    other = scatter(bayesian(network().double(), last=2, log_sigma_lr_scale=0.7), seed=1, center=0.6)
    for each in gaussians(other):
        each.mean.data.add_(0.3 * torch.randn(each.mean.shape, generator=random(2)))
    return one, other


def test_kl_is_that_of_torch_distributions() -> None:
    model, prior = two_models()
    standard = sum(kl_divergence(q, Normal(0.0, 1.0)).sum() for q in normals(model))
    torch.testing.assert_close(kl(model), standard)
    between = sum(kl_divergence(q, p).sum() for q, p in zip(normals(model), normals(prior), strict=True))
    torch.testing.assert_close(kl(model, prior), between)
    assert kl(model, model).item() == pytest.approx(0, abs=1e-12)


def test_kl_is_the_mean_log_ratio_of_drawn_weights() -> None:
    model, prior = two_models()
    torch.manual_seed(0)
    ratios = torch.zeros(20_000, dtype=torch.float64)
    with torch.no_grad():
        for q, p in zip(normals(model), normals(prior), strict=True):
            drawn = q.sample(torch.Size([len(ratios)]))
            ratios += (q.log_prob(drawn) - p.log_prob(drawn)).flatten(1).sum(1)
    error = float(ratios.std()) / math.sqrt(len(ratios))
    assert abs(float(ratios.mean()) - kl(model, prior).item()) < CLOSE * error
    assert error < 0.01 * kl(model, prior).item(), "enough draws to tell"


# Local reparameterisation


def layer_of(kind: str) -> tuple[Variational, Tensor]:
    torch.manual_seed(0)
    made: Variational
    if kind == "conv":
        made = VariationalConv2d(4, 2, 3, stride=2, padding=1, groups=2)
        return made.double(), torch.randn(2, 4, 5, 5, dtype=torch.float64)
    made = VariationalLinear(4, 3, bias=kind != "linear without bias")
    return made.double(), torch.randn(3, 4, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["linear", "linear without bias", "conv"])
def test_outputs_have_the_moments_of_a_layer_with_drawn_weights(kind: str) -> None:
    layer, inputs = layer_of(kind)
    scatter(layer)
    count = 4000
    with torch.no_grad():
        many = inputs.repeat(count, *[1] * (inputs.dim() - 1))
        found = layer(many).unflatten(0, (count, -1))
        weights, *biases = (normal.sample(torch.Size([count])) for normal in normals(layer))
        rows = zip(weights, *biases, [None] * count, strict=True)
        wanted = torch.stack([layer.transform(inputs, *row[:2]) for row in rows])
    mean_error = (found.var(0) + wanted.var(0)).div(count).sqrt()
    assert float(((found.mean(0) - wanted.mean(0)).abs() / mean_error).max()) < CLOSE
    log_ratio = (found.var(0) / wanted.var(0)).log().abs()  # its standard error is √(2/n · 2)
    assert float(log_ratio.max()) < CLOSE * math.sqrt(4 / count)


def test_the_draws_of_examples_and_outputs_are_independent() -> None:
    layer = VariationalLinear(4, 2, sigma=1.0)
    with torch.no_grad():
        outputs = layer(torch.ones(20_000, 4))
    pairs = torch.stack([outputs[:-1, 0], outputs[:-1, 1], outputs[1:, 0]])
    correlation = pairs.corrcoef() - torch.eye(3)
    assert float(correlation.abs().max()) < CLOSE / math.sqrt(20_000)


def chunks_of_gradients(layer: Variational, explicit: bool) -> Tensor:
    """The data term's gradients by mean and log σ, [chunks, coordinates], each over many draws."""
    inputs, targets = torch.randn(5, 4, generator=random(), dtype=torch.float64), torch.arange(5) % 3
    parameters = [layer.weight, layer.weight_log_sigma, layer.bias, layer.bias_log_sigma]
    rows = []
    for _ in range(40):
        if explicit:
            weights, biases = (normal.rsample(torch.Size([500])) for normal in normals(layer))
            logits = torch.einsum("bi,soi->sbo", inputs, weights) + biases.unsqueeze(1)
        else:
            logits = layer(inputs.repeat(500, 1))
        loss = F.cross_entropy(logits.reshape(-1, 3), targets.repeat(500))
        gradients = torch.autograd.grad(loss, parameters)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return torch.stack(rows)


def test_the_data_terms_gradient_is_that_of_drawn_weights() -> None:
    layer, _ = layer_of("linear")
    scatter(layer, center=0.7)
    torch.manual_seed(1)
    found, wanted = (chunks_of_gradients(layer, explicit) for explicit in (False, True))
    error = (found.var(0) + wanted.var(0)).div(len(found)).sqrt()
    assert float(((found.mean(0) - wanted.mean(0)).abs() / error).max()) < CLOSE
    clear = wanted.mean(0).abs() > 10 * error
    assert clear[:12].any(), "the means' gradients are large enough to tell"
    assert clear[12:24].any(), "and those of log σ"
    assert float(found.var(0).sum()) < float(wanted.var(0).sum()), "and less noisy"


@pytest.mark.parametrize("kind", ["linear", "linear without bias", "conv"])
def test_with_a_tiny_sigma_it_is_the_point_layer(kind: str) -> None:
    layer, inputs = layer_of(kind)
    layer.make_bayesian(sigma=1e-9, log_sigma_lr_scale=0.1)
    plain = layer.transform(inputs, layer.weight, layer.bias)
    torch.testing.assert_close(layer(inputs), plain, rtol=0, atol=1e-7)
    assert not torch.equal(layer(inputs), plain)


@pytest.mark.parametrize("variance", [1e-20, 1e-12, 1e12, 1e20])
@pytest.mark.parametrize("kind", ["linear", "linear without bias", "conv"])
@pytest.mark.parametrize("size", [0.0, 1e-4, 1.0, 1e4])
def test_extreme_variances_stay_finite_in_float32(kind: str, variance: float, size: float) -> None:
    layer, inputs = layer_of(kind)
    layer.float().make_bayesian(sigma=math.sqrt(variance), log_sigma_lr_scale=0.1)
    inputs = (size * inputs).float().requires_grad_()
    outputs = layer(inputs)
    outputs.sum().backward()
    found = [outputs, inputs.grad, kl(layer), *(each.grad for each in layer.parameters())]
    assert all(each is not None and bool(each.isfinite().all()) for each in found)
