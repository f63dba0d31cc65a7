"""The α-barycentre: closed forms, integrals by scipy, and its limits."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gaussian_stacks import EQUAL, Array, assert_same, column, combine, draw
from scipy.integrate import quad
from torch import Tensor

from steelyard.combining import Alpha, ForwardKl, Rklb
from steelyard.errors import InputError


def mixture_of_products(means: Tensor, variances: Tensor, weights: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """(Σ w p^(1/n))^n is a mixture of products of n of the p^(1/n), which are Gaussian."""
    logs, centres, widths = [], [], []
    for chosen in map(list, itertools.product(range(len(weights)), repeat=n)):
        m, s = means[chosen], variances[chosen]
        variance = 1 / (1 / s).mean(dim=0)
        centre = variance * (m / s).mean(dim=0)
        height = s.log().mean(dim=0) + ((m - centre) ** 2 / s).mean(dim=0)
        logs.append(weights[chosen].log().sum() + (variance.log() - height) / 2)
        centres.append(centre)
        widths.append(variance)
    shares, at = torch.stack(logs).softmax(dim=0), torch.stack(centres)
    mean = (shares * at).sum(dim=0)
    return mean, (shares * (torch.stack(widths) + (at - mean) ** 2)).sum(dim=0)


@pytest.mark.parametrize("scales", [0.1, 0.5, 3.0, 12.0])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_alpha_is_exact_where_there_is_a_closed_form(n: int, scales: float) -> None:
    for distance in (0.0, 1.0, 30.0):
        means, variances, weights = draw(n, clients=3, scales=scales)
        found = combine(Alpha(alpha=1 / n), distance * means, variances, weights)
        assert_same(found, mixture_of_products(distance * means, variances, weights, n), rtol=1e-6)


def integrated(m: Array, s: Array, w: Array, power: float) -> tuple[float, float]:
    """The moments of (Σ w p^α)^(1/α), by scipy."""
    reach = 9 * math.sqrt(s.max())

    def density(x: float) -> float:
        logs = -((x - m) ** 2) / s / 2 - np.log(s) / 2
        return float((w @ np.exp(power * logs)) ** (1 / power))

    def integral(function: Callable[[float], float]) -> float:
        whole = quad(function, m.min() - reach, m.max() + reach, points=m, limit=500, epsabs=1e-12)
        return float(whole[0])

    total = integral(density)
    mean = integral(lambda x: x * density(x)) / total
    return mean, integral(lambda x: (x - mean) ** 2 * density(x)) / total


@pytest.mark.parametrize("power", [0.01, 0.07, 0.3, 0.7, 0.97])
@pytest.mark.parametrize("scales", [0.1, 1.0])
def test_alpha_is_what_scipy_integrates(power: float, scales: float) -> None:
    means, variances, weights = draw(3, clients=4, size=3, scales=scales)
    mean, variance = combine(Alpha(alpha=power), means, variances, weights)
    for k in range(3):
        expected = integrated(means[:, k].numpy(), variances[:, k].numpy(), weights.numpy(), power)
        assert (mean[k].item(), variance[k].item()) == pytest.approx(expected, rel=1e-6)


def test_alpha_goes_from_reverse_to_forward_kl() -> None:
    given = draw(1, scales=0.5)
    for power, rule in ((0.0, Rklb()), (1.0, ForwardKl())):
        end, expected = combine(Alpha(alpha=power), *given), combine(rule, *given)
        assert all(map(torch.equal, end, expected))
        near = combine(Alpha(alpha=abs(power - 1e-3)), *given)
        assert_same(near, expected, rtol=0.01)
        assert_same(combine(Alpha(alpha=abs(power - 1e-6)), *given), expected, rtol=1e-5)
        assert not torch.allclose(near[1], expected[1], rtol=1e-5)
    assert_same(combine(Alpha(alpha=1e-12), *given), combine(Rklb(), *given))


def test_a_small_alpha_finds_what_lies_between_distant_clients() -> None:
    """100 standard deviations apart the mass is near Σ w μ. With v = w₁w₂ = 0.24, to the first order
    in α: the mean is further by α v (log p₂ − log p₁) (μ₂ − μ₁), and (log f)'' = (−1 + α v 100²)/σ²."""
    weights = torch.tensor([0.4, 0.6], dtype=torch.float64)
    mean, variance = combine(Alpha(alpha=1e-6), column(0.0, 200.0), column(4.0, 4.0), weights)
    assert mean.item() == pytest.approx(120 + 1e-6 * 0.24 * (60**2 - 40**2) / 2 * 200, rel=1e-6)
    assert variance.item() == pytest.approx(4 / (1 - 1e-6 * 0.24 * 100**2), rel=1e-4)


def test_a_point_beside_a_wide_gaussian_is_the_limit_of_a_narrow_one() -> None:
    """(Σ w p^½)² → w₁² δ + w₂² p: the point keeps its mass, and touches nothing else."""
    mean, variance = combine(Alpha(), column(1.0, 0.0), column(0.0, 4.0), EQUAL)
    assert mean.item() == pytest.approx(0.5, abs=1e-4)
    assert variance.item() == pytest.approx(0.5 * 4 + 0.25, abs=1e-4)


@pytest.mark.parametrize("power", [-0.1, 1.1, math.nan])
def test_an_alpha_outside_of_0_to_1_is_refused(power: float) -> None:
    with pytest.raises(InputError, match="alpha must be from 0 to 1, not"):
        Alpha(power)
