"""The rules of "Probabilistic Inference for Learning from Untrusted Sources" in the notation of the paper:
float64, on the updates X themselves, coordinate by coordinate, no inner products.

(updates [J, K], counts [J]) -> weights [J] of a first round.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

T = 1e-9  # the rules' tolerance


def ivar_mle(x: Array, n: Array, floor: float = 1e-3, iterations: int = 20) -> Array:
    """Algorithm 1."""
    a = np.full(len(x), 1 / len(x))
    for _ in range(iterations):
        y = a @ x
        sigma2 = np.array([np.mean((x_j - y) ** 2) for x_j in x])
        a_before, a = a, _inverse(sigma2, floor)
        if np.abs(a - a_before).max() <= T:
            break
    return a


def _inverse(values: Array, floor: float) -> Array:
    scale = np.median(values) if np.median(values) > 0 else values.mean()
    if scale == 0:
        return np.full(len(values), 1 / len(values))
    scores = 1 / np.maximum(values / scale, floor)
    return scores / scores.sum()


def ivar_vb(x: Array, n: Array, iterations: int = 100, floor: float = 1e-3) -> Array:
    """Eqs. 10 to 13, normalised."""
    a, _, _ = _ivar_vb(x, iterations, floor)
    return a / a.sum()


def now(sigma2: Array) -> Array:
    """σ_j² without earlier rounds."""
    return sigma2


def _ivar_vb(
    x: Array, iterations: int = 100, floor: float = 0.0, over_rounds: Callable[[Array], Array] = now
) -> tuple[Array, Array, float]:
    clients, _size = x.shape
    tau2 = np.mean(x**2)
    a = np.full(clients, 1 / clients)
    if tau2 == 0:
        return a, np.zeros(clients), 0.0
    sigma2 = np.full(clients, tau2)
    for _ in range(iterations):
        p = 1 / over_rounds(sigma2)
        lam = 1 / (1 / tau2 + sum(p))
        a_before, a = a, lam * p
        y = a @ x
        tau2 = lam + np.mean(y**2)
        sigma2 = np.array([lam + np.mean((x_j - y) ** 2) for x_j in x])
        sigma2 = np.maximum(sigma2, floor * (np.median(sigma2) or sigma2.mean()))
        if np.abs(a - a_before).max() <= T:
            break
    return a, sigma2, tau2


def icov_mle(x: Array, n: Array, factors: int = 1, iterations: int = 50) -> Array:
    """Eqs. 3 and 4 with Φ = σ_u² V Vᵀ + σ² I, whose maximum likelihood is probabilistic PCA."""
    clients, size = x.shape
    a = ivar_vb(x, n, floor=0.0)
    for _ in range(iterations):
        delta = x - a @ x
        values, vectors = np.linalg.eigh(delta @ delta.T / size)
        if values[-1] <= 0:
            return np.full(clients, 1 / clients)
        values = np.maximum(values, 0) / values[-1]
        d = min(factors, clients - 1)
        sigma2 = max(values[: clients - d].mean(), 1e-9)
        phi = sigma2 * np.eye(clients)
        for value, v in zip(values[clients - d :], vectors.T[clients - d :], strict=True):
            phi += max(value - sigma2, 0) * np.outer(v, v)
        a_before, a = a, _gls(phi)
        if np.abs(a - a_before).max() <= T:
            break
    return a


def _gls(phi: Array) -> Array:
    solved = np.linalg.solve(phi, np.ones(len(phi)))
    return solved / solved.sum()


def icov_vb(x: Array, n: Array, factors: int = 1) -> Array:
    return icov_vb_round(x, factors).weights


class IcovRound(NamedTuple):
    weights: Array
    noise: Array
    """σ_j² of this round."""
    latent: Array
    """v_j, [J, D]."""


def icov_vb_round(
    x: Array,
    factors: int = 1,
    over_rounds: Callable[[Array], Array] = now,
    latent: Array | None = None,
    iterations: int = 100,
) -> IcovRound:
    """Eqs. 14 to 23 with a noise σ_j² for each client (Algorithm 2), then eq. 3.

    `over_rounds` averages this round's σ_j² with those of earlier rounds; `latent` is what is remembered.
    """
    clients, size = x.shape
    a, sigma2, _ = _ivar_vb(x, over_rounds=over_rounds)
    delta = x - (a / a.sum()) @ x
    if np.abs(delta).max() <= 1e-9 * np.abs(x).max():
        return IcovRound(np.full(clients, 1 / clients), sigma2, np.zeros((clients, factors)))
    distance = np.mean(delta**2, axis=1)
    min_noise = 1e-3 * (np.median(distance) if np.median(distance) > 0 else distance.mean())
    v = leading(delta, factors) if latent is None or np.linalg.norm(latent) <= 1e-6 else latent
    v = v / max(np.linalg.norm(v, axis=0).max(), 1e-300)
    psi = [np.zeros((factors, factors)) for _ in range(clients)]
    u = np.zeros((size, factors))
    sigma_y2, sigma_u2, sigma_v2 = np.mean(x**2), np.mean(x**2), 1.0
    sigma2 = over_rounds(sigma2)  # the start
    eye, weights = np.eye(factors), np.full(clients, 1 / clients)
    for _ in range(iterations):
        p = 1 / over_rounds(sigma2)
        lam = 1 / (1 / sigma_y2 + sum(p))
        y = lam * sum((x[j] - u @ v[j]) * p[j] for j in range(clients))
        phi = np.linalg.inv(
            eye / sigma_u2 + sum((psi[j] + np.outer(v[j], v[j])) * p[j] for j in range(clients))
        )
        u = sum(np.outer(x[j] - y, v[j]) * p[j] for j in range(clients)) @ phi
        square = size * phi + u.T @ u
        psi = [np.linalg.inv(eye / sigma_v2 + square * p[j]) for j in range(clients)]
        v = np.array([psi[j] @ (u.T @ (x[j] - y)) * p[j] for j in range(clients)])
        sigma_y2 = lam + np.mean(y**2)
        sigma_u2 = np.trace(square) / (factors * size)
        sigma_v2 = sum(np.trace(psi[j]) + v[j] @ v[j] for j in range(clients)) / (factors * clients)
        sigma2 = np.array(
            [
                lam
                + np.mean((x[j] - y) ** 2)
                - 2 * np.mean((x[j] - y) * (u @ v[j]))
                + np.trace(square @ (psi[j] + np.outer(v[j], v[j]))) / size
                for j in range(clients)
            ]
        )
        sigma2 = np.maximum(sigma2, min_noise)
        noise = over_rounds(sigma2)
        before, weights = weights, _gls((sigma_u2 * v @ v.T + np.diag(noise)) / noise.max())
        if np.abs(weights - before).max() <= T:
            break
    return IcovRound(weights, sigma2, v)


def leading(delta: Array, factors: int) -> Array:
    """v_j [J, D] from the leading eigenvectors of the residuals' inner products."""
    values, vectors = np.linalg.eigh(delta @ delta.T)
    v = np.zeros((len(delta), factors))
    for d in range(min(factors, len(delta))):
        column = vectors[:, -1 - d] * (-1 if vectors[:, -1 - d].sum() < 0 else 1)
        v[:, d] = column * np.sqrt(max(values[-1 - d], 0))
    return v


def icov_em(x: Array, n: Array, factors: int = 2, iterations: int = 500) -> Array:
    """EM for x^k = y^k 1 + V u^k + noise, coordinate by coordinate; D = 0 … factors is chosen by BIC."""
    clients, size = x.shape
    a = ivar_vb(x, n, floor=0.0)
    delta = x - a @ x
    variance = np.mean(delta**2, axis=1)
    if np.abs(delta).max() <= 1e-9 * np.abs(x).max():
        return np.full(clients, 1 / clients)
    unit = np.sqrt(np.median(variance) if np.median(variance) > 0 else variance.mean())
    x, delta, variance = x / unit, delta / unit, variance / unit**2
    eigenvalues, eigenvectors = np.linalg.eigh(delta @ delta.T / size)
    fits = []
    for d in range(min(factors, max(0, clients - 3)) + 1):
        v = np.zeros((clients, d))
        for k in range(d):
            sign = -1 if eigenvectors[:, -1 - k].sum() < 0 else 1
            v[:, k] = sign * eigenvectors[:, -1 - k] * np.sqrt(max(eigenvalues[-1 - k], 0))
        sigma2, sigma_y2, weights = np.maximum(variance, 1e-3), max(np.mean((a @ x) ** 2), 1e-3), a
        for _ in range(iterations):
            sigma2, sigma_y2, v = _em_step(x, sigma2, sigma_y2, v)
            before, weights = weights, _gls(v @ v.T + np.diag(sigma2))
            if np.abs(weights - before).max() <= 1e-8:
                break
        total = v @ v.T + np.diag(sigma2) + sigma_y2
        fitted = size * np.linalg.slogdet(total)[1] + sum(
            x[:, k] @ np.linalg.solve(total, x[:, k]) for k in range(size)
        )
        fits.append((fitted + (clients + 1 + clients * d - d * (d - 1) // 2) * np.log(size), weights))
    return min(fits, key=lambda pair: pair[0])[1]


def _em_step(x: Array, sigma2: Array, sigma_y2: float, v: Array) -> tuple[Array, float, Array]:
    """Posterior of (y, u) of each coordinate, then the parameters that fit it best."""
    clients, size = x.shape
    d = v.shape[1]
    loadings = np.column_stack([np.ones(clients), v])
    prior = np.diag([1 / sigma_y2] + [1.0] * d)
    covariance = np.linalg.inv(prior + loadings.T @ np.diag(1 / sigma2) @ loadings)
    z = np.array([covariance @ loadings.T @ (x[:, k] / sigma2) for k in range(size)])
    moment = covariance + z.T @ z / size
    sigma_y2 = moment[0, 0]
    if d:
        v = (x @ z[:, 1:] / size - moment[0, 1:]) @ np.linalg.inv(moment[1:, 1:])
    loadings = np.column_stack([np.ones(clients), v])
    error = [
        np.mean((x[j] - z @ loadings[j]) ** 2) + loadings[j] @ covariance @ loadings[j]
        for j in range(clients)
    ]
    return np.maximum(error, 1e-3), sigma_y2, v
