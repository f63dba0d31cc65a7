"""The barycentres of Gaussians: examples by hand, what they minimise, limits, and limited variances."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import minimize
from torch import Tensor

import steelyard as sy
from steelyard.combining import Aalv, Alpha, Combiner, Eaa, ForwardKl, Gaa, Rklb, Wb, alpha, barycenter
from steelyard.errors import InputError
from steelyard.types import Stack

Array = NDArray[np.float64]
ALL: list[type[barycenter.Barycenter]] = [Eaa, Gaa, Aalv, Rklb, Wb, ForwardKl, Alpha]
every_rule = pytest.mark.parametrize("make", ALL)
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


@pytest.mark.parametrize(
    ("rule", "mean", "variance"),
    [
        ("eaa", 1.0, 0.625),
        ("gaa", 1.0, 0.3125),
        ("aalv", 1.0, 0.5),
        ("rklb", 1.6, 0.4),
        ("wb", 1.0, 0.5625),
        ("forward-kl", 1.0, 1.625),
    ],
)
def test_the_papers_toy(rule: str, mean: float, variance: float) -> None:
    """N(0, 1) and N(2, 1/4) with equal weights."""
    combined = sy.combine([[0.0], [2.0]], [0.5, 0.5], rule=rule, variances=[[1.0], [0.25]])
    assert combined.variance is not None
    assert combined.mean.item() == pytest.approx(mean, rel=1e-6)
    assert combined.variance.item() == pytest.approx(variance, rel=1e-6)


def kl(m: Any, s: Any, n: Any, t: Any) -> Any:
    """KL(N(m, s) ‖ N(n, t)), given variances."""
    return (np.log(t / s) + (s + (m - n) ** 2) / t - 1) / 2


DIVERGENCES: list[tuple[Combiner, Callable[..., Any]]] = [
    (Rklb(), lambda m, s, q, t: kl(q, t, m, s)),
    (Wb(), lambda m, s, q, t: (m - q) ** 2 + (np.sqrt(s) - np.sqrt(t)) ** 2),
    (ForwardKl(), kl),
]


@pytest.mark.parametrize(("rule", "divergence"), DIVERGENCES, ids=["rklb", "wb", "forward-kl"])
@pytest.mark.parametrize("seed", range(5))
def test_a_barycentre_minimises_the_mean_divergence(
    rule: Combiner, divergence: Callable[..., Any], seed: int
) -> None:
    means, variances, weights = draw(seed, size=1, scales=0.7)
    m, s, w = means[:, 0].numpy(), variances[:, 0].numpy(), weights.numpy()

    def total(point: Array) -> float:
        return float(w @ divergence(m, s, point[0], np.exp(point[1])))

    best = minimize(total, x0=np.zeros(2), method="BFGS", options={"gtol": 1e-7})
    mean, variance = combine(rule, means, variances, weights)
    assert (mean.item(), variance.log().item()) == pytest.approx(tuple(best.x), abs=1e-4)
    assert total(np.array([mean.item(), variance.log().item()])) <= best.fun + 1e-12


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


@every_rule
def test_points_stay_points(make: type[barycenter.Barycenter]) -> None:
    """Without variance all rules are the weighted mean; a client that does not count changes nothing."""
    means, weights = column(1.0, 4.0, 100.0), torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64)
    for claimed in (0.0, 7.0):
        mean, variance = combine(make(), means, column(0.0, 0.0, claimed), weights)
        assert (mean.item(), variance.item()) == (3.25, 0.0)


@pytest.mark.parametrize(
    ("rule", "mean", "variance"),
    [
        (Eaa(), 3.0, 0.5 * 4),
        (Gaa(), 3.0, 0.25 * 4),
        (Aalv(), 3.0, 0.0),
        (Rklb(), (0.2 * 1 + 0.3 * 2) / 0.5, 0.0),
        (Wb(), 3.0, (0.5 * 2) ** 2),
        (ForwardKl(), 3.0, 0.2 * 2**2 + 0.3 * 1**2 + 0.5 * (4 + 1.4**2)),
        (Alpha(alpha=0.0), 1.6, 0.0),
    ],
    ids=repr,
)
def test_clients_without_variance_among_others(rule: Combiner, mean: float, variance: float) -> None:
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    found = combine(rule, column(1.0, 2.0, 4.4), column(0.0, 0.0, 4.0), weights)
    assert found[0].item() == pytest.approx(mean)
    assert found[1].item() == pytest.approx(variance)


def test_a_point_beside_a_wide_gaussian_is_the_limit_of_a_narrow_one() -> None:
    """(Σ w p^½)² → w₁² δ + w₂² p: the point keeps its mass, and touches nothing else."""
    mean, variance = combine(Alpha(), column(1.0, 0.0), column(0.0, 4.0), EQUAL)
    assert mean.item() == pytest.approx(0.5, abs=1e-4)
    assert variance.item() == pytest.approx(0.5 * 4 + 0.25, abs=1e-4)


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_variances_of_any_size(make: type[barycenter.Barycenter], dtype: torch.dtype) -> None:
    sizes = torch.tensor([1e-12, 1e-6, 1.0, 1e6, 1e12], dtype=dtype)
    variances = torch.cartesian_prod(sizes, sizes, sizes).T.contiguous()
    means = torch.randn(3, 125, generator=torch.Generator().manual_seed(0), dtype=dtype)
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    for scale in (1e-6, 1.0, 1e6):
        mean, variance = combine(make(), scale * means, variances, weights)
        assert mean.dtype == variance.dtype == dtype
        assert torch.isfinite(mean).all()
        assert torch.isfinite(variance).all()
        assert (variance > 0).all()
        exact = combine(make(), (scale * means).double(), variances.double(), weights)
        assert_same((mean.double(), variance.double()), exact, rtol=1e-6)
        assert (mean <= scale * means.amax(dim=0) + 1e-6 * scale).all()
        assert (mean >= scale * means.amin(dim=0) - 1e-6 * scale).all()


@every_rule
def test_means_at_the_limit_leave_a_finite_variance(make: type[barycenter.Barycenter]) -> None:
    means, variances = torch.tensor([[-1e30], [1e30]]), torch.tensor([[1e30], [1.0]])
    found = combine(make(), means, variances, EQUAL)
    assert all(torch.isfinite(moment).all() for moment in found)


@every_rule
@pytest.mark.parametrize("claimed", [0.0, 1e-12, 1e12])
def test_a_client_without_weight_changes_nothing(make: type[barycenter.Barycenter], claimed: float) -> None:
    means, variances, weights = draw(2)
    weights[0], variances[0] = 0.0, claimed
    absent = combine(make(), means[1:], variances[1:], weights[1:] / weights.sum())
    assert_same(combine(make(), means, variances, weights / weights.sum()), absent)


@every_rule
def test_weights_need_not_sum_to_one(make: type[barycenter.Barycenter]) -> None:
    means, variances, weights = draw(4)
    assert_same(combine(make(), means, variances, 40 * weights), combine(make(), means, variances, weights))


@every_rule
def test_negative_weights_make_no_negative_variance(make: type[barycenter.Barycenter]) -> None:
    """Negative weights count in Σ w μ only."""
    means, variances, _ = draw(5, clients=3)
    weights = torch.tensor([-0.5, 0.6, 0.9], dtype=torch.float64)
    counted = torch.tensor([0.0, 0.4, 0.6], dtype=torch.float64)
    for first in (variances[0], torch.zeros(60, dtype=torch.float64), 1e9 * variances[0]):
        variances[0] = first
        found, expected = (combine(make(), means, variances, each) for each in (weights, counted))
        if make in (Rklb, Alpha):
            assert_same(found, expected)
        else:
            torch.testing.assert_close(found[0], weights @ means)
        shift = (counted - weights) @ means if make is ForwardKl else torch.zeros(60, dtype=torch.float64)
        torch.testing.assert_close(found[1], expected[1] + shift.square())
    points = combine(make(), means, torch.zeros_like(means), weights)
    torch.testing.assert_close(points[0], weights @ means)


@every_rule
def test_order_and_place_do_not_matter(make: type[barycenter.Barycenter]) -> None:
    means, variances, weights = draw(6)
    order = torch.tensor([3, 0, 4, 1, 2])
    mean, variance = combine(make(), means, variances, weights)
    assert_same(combine(make(), means[order], variances[order], weights[order]), (mean, variance))
    assert_same(combine(make(), means + 8.0, variances, weights), (mean + 8.0, variance))
    mirrored = combine(make(), -means, variances, weights)
    assert_same(mirrored, (-mean, variance))


@every_rule
@pytest.mark.parametrize("ratio", [math.inf, 2.0])
def test_coordinates_do_not_depend_on_their_block(
    make: type[barycenter.Barycenter], ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    means, variances, weights = draw(7, scales=2.0)
    whole = combine(make(variance_ratio_limit=ratio), means, variances, weights)
    monkeypatch.setattr(barycenter, "BLOCK_NUMBERS", 5 * 7)
    monkeypatch.setattr(alpha, "BLOCK_NUMBERS", 1)
    assert_same(combine(make(variance_ratio_limit=ratio), means, variances, weights), whole)


def test_a_limited_claim_of_certainty_moves_the_mean_no_further_than_its_share() -> None:
    """Four clients at 0 with variances around 1; the fifth sends 1 with a variance of 1e-8."""
    means, weights = column(0.0, 0.0, 0.0, 0.0, 1.0), torch.full((5,), 0.2, dtype=torch.float64)
    variances = column(0.8, 0.9, 1.0, 1.1, 1e-8)
    median, ratio = 0.9, 2.0
    precision = 0.2 * ratio / median
    bound = precision / (precision + 0.2 * (1 / 0.8 + 1 / 0.9 + 1 / 1.0 + 1 / 1.1))
    assert combine(Rklb(), means, variances, weights)[0].item() > 0.999
    mean, variance = combine(Rklb(variance_ratio_limit=ratio), means, variances, weights)
    assert mean.item() == pytest.approx(bound)
    assert bound < ratio / (ratio + 4 / ratio)  # whatever the others' variances are within the same bounds
    assert variance.item() == pytest.approx(5 / (2 / 0.9 + 1 / 0.8 + 1 / 0.9 + 1 / 1.0 + 1 / 1.1))


def test_a_limited_claim_of_ignorance_does_not_dominate_the_merged_variance() -> None:
    weights, variances = torch.full((5,), 0.2, dtype=torch.float64), column(0.8, 0.9, 1.0, 1.1, 1e8)
    means = torch.zeros(5, 1, dtype=torch.float64)
    assert combine(Eaa(), means, variances, weights)[1].item() > 1e7
    eaa, wb = Eaa(variance_ratio_limit=3.0), Wb(variance_ratio_limit=3.0)
    assert combine(eaa, means, variances, weights)[1].item() == pytest.approx((3.8 + 3.0) / 5)
    assert combine(wb, means, variances, weights)[1].item() < 3.0


@every_rule
def test_variance_ratio_limit(make: type[barycenter.Barycenter]) -> None:
    means, variances, weights = draw(8, clients=4, scales=0.2)
    published = combine(make(), means, variances, weights)
    assert_same(combine(make(variance_ratio_limit=1e9), means, variances, weights), published)
    medians = torch.from_numpy(np.median(variances.numpy(), axis=0)).expand(4, -1)
    limited = combine(make(variance_ratio_limit=1.0), means, variances, weights)
    assert_same(limited, combine(make(), means, medians, weights))
    points = variances.clone()
    points[:3] = 0.0
    mean, variance = combine(make(variance_ratio_limit=2.0), means, points, weights)
    torch.testing.assert_close(mean, weights @ means)
    assert not variance.any()


@every_rule
@pytest.mark.parametrize("ratio", [0.5, 0.0, -2.0, math.nan])
def test_a_variance_ratio_limit_below_one_is_refused(make: type[barycenter.Barycenter], ratio: float) -> None:
    with pytest.raises(InputError, match="variance_ratio_limit must be at least 1, not"):
        make(variance_ratio_limit=ratio)


@pytest.mark.parametrize("power", [-0.1, 1.1, math.nan])
def test_an_alpha_outside_of_0_to_1_is_refused(power: float) -> None:
    with pytest.raises(InputError, match="alpha must be from 0 to 1, not"):
        Alpha(power)


def test_what_is_needed_is_asked_for() -> None:
    means, variances, _ = draw(9, clients=2)
    with pytest.raises(InputError, match="needs variances"):
        sy.combine(means, rule="rklb")
    with pytest.raises(InputError, match="needs variances"):
        Rklb().combine(Stack(means), EQUAL)
    with pytest.raises(InputError, match="weights whose sum is positive"):
        combine(Rklb(), means, variances, 0 * EQUAL)
