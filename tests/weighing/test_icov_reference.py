"""The closed form inside icov-mle against the gradients that the paper ascends (eqs. 9a to 9c).

For residuals δ of K coordinates, C = δδᵀ/K and Φ = σ_u² V Vᵀ + σ² I, the log-likelihood of a round is
E = −log|Φ| − Tr(Φ⁻¹ C), up to a factor and a constant; its gradients are the paper's, with
G = Φ⁻¹ C Φ⁻¹ − Φ⁻¹.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from steelyard.weighing.icov import principal_covariance

Array = NDArray[np.float64]
CASES = [(clients, factors, seed) for clients, factors in ((4, 1), (5, 2), (6, 3)) for seed in range(3)]
every_case = pytest.mark.parametrize(("clients", "factors", "seed"), CASES)


def residuals(clients: int, seed: int, size: int = 200) -> Array:
    """C of updates that share latent directions and lie around their mean."""
    random = np.random.default_rng(seed)
    shared = random.normal(size=(clients, 3)) @ random.normal(size=(3, size))
    updates = shared + random.normal(size=(clients, size))
    delta = updates - updates.mean(axis=0)
    return delta @ delta.T / size


def likelihood(phi: Array, c: Array) -> float:
    return float(-np.linalg.slogdet(phi)[1] - np.trace(np.linalg.solve(phi, c)))


def gradients(v: Array, sigma2: float, sigma_u2: float, c: Array) -> tuple[Array, float, float]:
    """Eqs. 9a, 9b and 9c."""
    inverse = np.linalg.inv(sigma_u2 * v @ v.T + sigma2 * np.eye(len(c)))
    g = inverse @ c @ inverse - inverse
    return 2 * sigma_u2 * g @ v, float(np.trace(g)), float(np.trace(g @ v @ v.T))


def closed_form(c: Array, factors: int) -> Array:
    """Φ in the unit of C: the rule gives it relative to the largest eigenvalue."""
    found = principal_covariance(torch.from_numpy(c), factors).numpy()
    return np.asarray(found * np.linalg.eigvalsh(c)[-1])


def parts(phi: Array, factors: int) -> tuple[Array, float]:
    """V and σ² with σ_u² = 1."""
    values, vectors = np.linalg.eigh(phi)
    sigma2 = float(values[0])
    return vectors[:, -factors:] * np.sqrt(values[-factors:] - sigma2), sigma2


def ascend(c: Array, factors: int, seed: int) -> float:
    """The best likelihood that BFGS finds from three starts, with log σ² and log σ_u² as free numbers."""
    clients = len(c)

    def objective(flat: Array) -> tuple[float, Array]:
        v, (sigma2, sigma_u2) = flat[:-2].reshape(clients, factors), np.exp(flat[-2:])
        by_v, by_sigma2, by_sigma_u2 = gradients(v, sigma2, sigma_u2, c)
        slope = np.concatenate([by_v.ravel(), [by_sigma2 * sigma2, by_sigma_u2 * sigma_u2]])
        return -likelihood(sigma_u2 * v @ v.T + sigma2 * np.eye(clients), c), -slope

    random = np.random.default_rng(seed)
    starts = [np.append(random.normal(size=clients * factors), [0.0, 0.0]) for _ in range(3)]
    return max(-float(minimize(objective, start, jac=True, method="BFGS").fun) for start in starts)


@every_case
def test_the_closed_form_is_as_likely_as_what_an_optimiser_finds(
    clients: int, factors: int, seed: int
) -> None:
    c = residuals(clients, seed)
    found = likelihood(closed_form(c, factors), c)
    assert found == pytest.approx(ascend(c, factors, seed), abs=1e-6)


@every_case
def test_the_paper_s_gradients_vanish_at_the_closed_form(clients: int, factors: int, seed: int) -> None:
    c = residuals(clients, seed)
    v, sigma2 = parts(closed_form(c, factors), factors)
    by_v, by_sigma2, by_sigma_u2 = gradients(v, sigma2, 1.0, c)
    np.testing.assert_allclose(by_v, 0, atol=1e-9)
    assert by_sigma2 == pytest.approx(0, abs=1e-9)
    assert by_sigma_u2 == pytest.approx(0, abs=1e-9)


@every_case
def test_any_other_covariance_is_less_likely(clients: int, factors: int, seed: int) -> None:
    """Among those of the same form: V and σ² a little off."""
    c, random = residuals(clients, seed), np.random.default_rng(seed)
    v, sigma2 = parts(closed_form(c, factors), factors)
    best = likelihood(v @ v.T + sigma2 * np.eye(clients), c)
    for _ in range(20):
        other = v + 0.05 * random.normal(size=v.shape)
        noise = sigma2 * np.exp(0.05 * random.normal())
        assert likelihood(other @ other.T + noise * np.eye(clients), c) < best


def test_the_gradients_are_those_of_the_likelihood() -> None:
    """So that the two tests above compare with the right thing: central differences."""
    c, random = residuals(5, 7), np.random.default_rng(7)
    v, sigma2, sigma_u2, step = random.normal(size=(5, 2)), 0.7, 1.3, 1e-6

    def value(v: Array, sigma2: float, sigma_u2: float) -> float:
        return likelihood(sigma_u2 * v @ v.T + sigma2 * np.eye(5), c)

    by_v, by_sigma2, by_sigma_u2 = gradients(v, sigma2, sigma_u2, c)
    bump = np.zeros_like(v)
    bump[3, 1] = step
    slopes = [
        value(v + bump, sigma2, sigma_u2) - value(v - bump, sigma2, sigma_u2),
        value(v, sigma2 + step, sigma_u2) - value(v, sigma2 - step, sigma_u2),
        value(v, sigma2, sigma_u2 + step) - value(v, sigma2, sigma_u2 - step),
    ]
    np.testing.assert_allclose(np.array(slopes) / (2 * step), [by_v[3, 1], by_sigma2, by_sigma_u2], rtol=1e-5)
