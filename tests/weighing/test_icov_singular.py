"""ICOV rules where covariances are singular: copies, updates of 0, and very few clients."""

import pytest
import torch
from torch import Tensor

from steelyard import weigh
from steelyard.weighing.icov import factor_gls
from steelyard.weighing.icov_em import Fit, em_step, log_likelihood
from steelyard.weighing.steps import inverted


def row(seed: int = 0) -> Tensor:
    return torch.randn(50, generator=torch.Generator().manual_seed(seed))


CASES = {
    "one client": row().expand(1, -1),
    "two clients": torch.stack([row(0), row(1)]),
    "two equal clients": row().expand(2, -1),
    "all equal": row().expand(6, -1),
    "all 0": torch.zeros(6, 50),
    "all 0 but one": torch.cat([torch.zeros(5, 50), row().expand(1, -1)]),
    "three pairs": torch.stack([row(seed // 2) for seed in range(6)]),
    "multiples": torch.linspace(-1, 2, 6).unsqueeze(1) * row(),
    "copies and one opposite": torch.cat([row().expand(5, -1), -row().expand(1, -1)]),
    "fewer coordinates than clients": torch.stack([row(seed)[:2] for seed in range(6)]),
}


@pytest.mark.parametrize("rule", ["icov-em", "icov-mle", "icov-vb"])
@pytest.mark.parametrize("name", CASES)
def test_weights_are_finite_and_sum_to_1(rule: str, name: str) -> None:
    for updates in (CASES[name], CASES[name].double(), 1e-12 * CASES[name]):
        found = weigh(updates, rule, max_norm_ratio=float("inf"))
        assert float(found.weights.sum()) == pytest.approx(1, abs=1e-6)
        assert all(bool(values.isfinite().all()) for values in found.evidence.values())


def test_an_inverse_is_that_of_the_nearest_regular_matrix() -> None:
    regular = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(inverted(regular) @ regular, torch.eye(2, dtype=torch.float64))
    singular = torch.ones(2, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="singular"):
        torch.linalg.solve(singular, torch.ones(2, dtype=torch.float64))
    image = torch.ones(2, dtype=torch.float64)
    torch.testing.assert_close(singular @ inverted(singular) @ image, image)
    assert bool(inverted(torch.zeros(2, 2, dtype=torch.float64)).isfinite().all())


def test_two_equal_factors_that_rounding_makes_singular_are_weighed() -> None:
    """1 + 10²⁰ is 10²⁰ in float64: the matrices of both factors have equal rows."""
    latent = 1e10 * torch.linspace(1, 2, 5, dtype=torch.float64).unsqueeze(1).expand(5, 2)
    noise = torch.linspace(1, 2, 5, dtype=torch.float64)
    core = torch.eye(2, dtype=torch.float64) + latent.T @ (latent / noise.unsqueeze(1))
    with pytest.raises(RuntimeError, match="singular"):
        torch.linalg.solve(core, torch.ones(2, dtype=torch.float64))
    assert bool(factor_gls(latent, noise, clip=False).isfinite().all())
    second = torch.eye(5, dtype=torch.float64)
    fit = em_step(Fit(latent, noise, torch.ones((), dtype=torch.float64)), second, 1e-3)
    assert all(bool(part.isfinite().all()) for part in fit)


def test_the_likelihood_is_that_of_the_covariance_of_the_updates() -> None:
    random = torch.Generator().manual_seed(1)
    latent = torch.randn(5, 2, generator=random, dtype=torch.float64)
    x = torch.randn(5, 40, generator=random, dtype=torch.float64)
    fit = Fit(latent, torch.linspace(0.5, 2, 5, dtype=torch.float64), torch.tensor(1.7).double())
    second = x @ x.T / 40
    total = fit.covariance + fit.power
    expected = -0.5 * (total.logdet() + torch.linalg.solve(total, second).trace())
    assert log_likelihood(fit, second) == pytest.approx(float(expected), rel=1e-12)
