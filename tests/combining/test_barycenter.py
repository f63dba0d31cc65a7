"""The barycentres of Gaussians: examples by hand, what they minimise, limits, and limited variances."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gaussian_stacks import EQUAL, Array, assert_same, column, combine, draw
from scipy.optimize import minimize

import steelyard as sy
from steelyard.combining import Aalv, Alpha, Combiner, Eaa, ForwardKl, Gaa, Rklb, Wb, alpha, barycenter
from steelyard.errors import InputError
from steelyard.types import Stack

ALL: list[type[barycenter.Barycenter]] = [Eaa, Gaa, Aalv, Rklb, Wb, ForwardKl, Alpha]
every_rule = pytest.mark.parametrize("make", ALL)


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


def test_what_is_needed_is_asked_for() -> None:
    means, variances, _ = draw(9, clients=2)
    with pytest.raises(InputError, match="needs variances"):
        sy.combine(means, rule="rklb")
    with pytest.raises(InputError, match="needs variances"):
        Rklb().combine(Stack(means), EQUAL)
    with pytest.raises(InputError, match="weights whose sum is positive"):
        combine(Rklb(), means, variances, 0 * EQUAL)
