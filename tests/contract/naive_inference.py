"""The rules of "Probabilistic Inference for Learning from Untrusted Sources" and the robust baselines, in the
notation of their papers: float64, on the updates X themselves, coordinate by coordinate, no inner products.

(updates [J, K], counts [J]) -> weights [J] of a first round.
"""

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


def ivar_vb(x: Array, n: Array, iterations: int = 100) -> Array:
    """Eqs. 10 to 13, normalised."""
    a, _, _ = _ivar_vb(x, iterations)
    return a / a.sum()


def _ivar_vb(x: Array, iterations: int = 100) -> tuple[Array, Array, float]:
    clients, _size = x.shape
    tau2 = np.mean(x**2)
    a = np.full(clients, 1 / clients)
    if tau2 == 0:
        return a, np.zeros(clients), 0.0
    sigma2 = np.full(clients, tau2)
    for _ in range(iterations):
        lam = 1 / (1 / tau2 + sum(1 / sigma2))
        a_before, a = a, lam / sigma2
        y = a @ x
        tau2 = lam + np.mean(y**2)
        sigma2 = np.array([lam + np.mean((x_j - y) ** 2) for x_j in x])
        if np.abs(a - a_before).max() <= T:
            break
    return a, sigma2, tau2


def icov_mle(x: Array, n: Array, factors: int = 1, iterations: int = 50) -> Array:
    """Eqs. 3 and 4 with Φ = σ_u² V Vᵀ + σ² I, whose maximum likelihood is probabilistic PCA."""
    clients, size = x.shape
    a = ivar_vb(x, n)
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


def icov_vb(x: Array, n: Array, factors: int = 1, iterations: int = 100) -> Array:
    """Eqs. 14 to 23 with a noise σ_j² for each client (Algorithm 2), then eq. 3."""
    clients, size = x.shape
    a, sigma2, _ = _ivar_vb(x)
    delta = x - (a / a.sum()) @ x
    if np.abs(delta).max() <= 1e-9 * np.abs(x).max():
        return np.full(clients, 1 / clients)
    distance = np.mean(delta**2, axis=1)
    min_noise = 1e-3 * (np.median(distance) if np.median(distance) > 0 else distance.mean())
    values, vectors = np.linalg.eigh(delta @ delta.T)
    v = np.zeros((clients, factors))
    for d in range(min(factors, clients)):
        leading = vectors[:, -1 - d] * (-1 if vectors[:, -1 - d].sum() < 0 else 1)
        v[:, d] = leading * np.sqrt(max(values[-1 - d], 0) / max(values[-1], 1e-300))
    psi = [np.zeros((factors, factors)) for _ in range(clients)]
    u = np.zeros((size, factors))
    sigma_y2, sigma_u2, sigma_v2 = np.mean(x**2), np.mean(x**2), 1.0
    eye, weights = np.eye(factors), np.full(clients, 1 / clients)
    for _ in range(iterations):
        lam = 1 / (1 / sigma_y2 + sum(1 / sigma2))
        y = lam * sum((x[j] - u @ v[j]) / sigma2[j] for j in range(clients))
        phi = np.linalg.inv(
            eye / sigma_u2 + sum((psi[j] + np.outer(v[j], v[j])) / sigma2[j] for j in range(clients))
        )
        u = sum(np.outer(x[j] - y, v[j]) / sigma2[j] for j in range(clients)) @ phi
        square = size * phi + u.T @ u
        psi = [np.linalg.inv(eye / sigma_v2 + square / sigma2[j]) for j in range(clients)]
        v = np.array([psi[j] @ (u.T @ (x[j] - y)) / sigma2[j] for j in range(clients)])
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
        before, weights = weights, _gls((sigma_u2 * v @ v.T + np.diag(sigma2)) / sigma2.max())
        if np.abs(weights - before).max() <= T:
            break
    return weights


def icov_em(x: Array, n: Array, factors: int = 2, iterations: int = 500) -> Array:
    """EM for x^k = y^k 1 + V u^k + noise, coordinate by coordinate; D = 0 … factors is chosen by BIC."""
    clients, size = x.shape
    a = ivar_vb(x, n)
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


def geometric_median(x: Array, n: Array, power: float = 0.0, cap: float = 3.0) -> Array:
    """Smoothed Weiszfeld."""
    prior = np.minimum(n, cap * np.median(n)) ** power
    prior = prior / prior.sum()
    a = prior
    distance = np.linalg.norm(x - prior @ x, axis=1)
    nu = 1e-6 * (np.median(distance) if np.median(distance) > 0 else distance.mean())
    for _ in range(100):
        distance = np.array([np.linalg.norm(x_j - a @ x) for x_j in x])
        a_before, a = a, prior / np.maximum(distance, nu) if nu > 0 else prior
        a = a / a.sum()
        if np.abs(a - a_before).max() <= T:
            break
    return a


def _squared(x: Array) -> Array:
    return np.array([[((a - b) ** 2).sum() for b in x] for a in x])


def krum_scores(x: Array, f: int | None) -> tuple[Array, int]:
    clients = len(x)
    limit = max(0, (clients - 3) // 2)
    f = limit if f is None else min(f, limit)
    nearest = np.sort(_squared(x), axis=1)[:, 1 : max(1, clients - f - 2) + 1]
    return nearest.sum(axis=1), f


def krum(x: Array, n: Array, f: int | None = None) -> Array:
    scores, _ = krum_scores(x, f)
    chosen = scores <= scores.min() * (1 + 1e-9)
    return chosen / chosen.sum()


def multi_krum(x: Array, n: Array, f: int | None = None) -> Array:
    scores, f = krum_scores(x, f)
    chosen = scores <= np.sort(scores)[len(x) - f - 1] * (1 + 1e-9)
    return chosen / chosen.sum()


def centered_clipping(x: Array, n: Array, radius: float | None = None, iterations: int = 5) -> Array:
    """Track the centre as a vector, together with its weights."""
    sums = np.sqrt(_squared(x)).sum(axis=1)
    first = sums <= sums.min() * (1 + 1e-9)
    a = first / first.sum()
    v = a @ x
    distance = np.linalg.norm(x - v, axis=1)
    if radius is None:
        radius = float(np.median(distance)) or float(distance.mean())
    for _ in range(iterations):
        distance = np.linalg.norm(x - v, axis=1)
        factor = np.array([1.0 if d <= radius else radius / d for d in distance])
        v = v + np.mean(factor[:, None] * (x - v), axis=0)
        a = a + (factor - a * factor.sum()) / len(x)
    return a


def nnm(x: Array, n: Array, f: int | None = None) -> Array:
    """Mix on the updates themselves, then the geometric median of the mixtures."""
    limit = (len(x) - 1) // 2
    count = len(x) - (limit if f is None else min(f, limit))
    squared = _squared(x)
    mixing = np.zeros((len(x), len(x)))
    for j, row in enumerate(squared):
        near = row <= np.sort(row)[count - 1] * (1 + 1e-9)
        mixing[j, near] = 1 / near.sum()
    return mixing.T @ geometric_median(mixing @ x, n)


def majority(x: Array, n: Array, cap: float = 3.0, tolerance: float = 2.0, crowd: float = 0.3) -> Array:
    """A first round: no history yet."""
    clients = len(x)
    norms = np.linalg.norm(x, axis=1)
    cosine = np.zeros((clients, clients))
    for i in range(clients):
        for j in range(clients):
            if i != j and norms[i] * norms[j] > 0:
                cosine[i, j] = x[i] @ x[j] / (norms[i] * norms[j])
    votes = _votes(x, crowd)
    values, vectors = np.linalg.eigh(np.sqrt(np.outer(votes, votes)) * cosine)
    sides = [vectors[:, -1] > 0, vectors[:, -1] <= 0]
    within = [(votes * side) @ cosine @ (votes * side) for side in sides]
    camp = max(zip(sides, within, strict=True), key=lambda pair: (round(votes[pair[0]].sum()), pair[1]))[0]
    agreement = np.zeros(clients)
    for j in range(clients):
        others = [i for i in range(clients) if camp[i] and i != j]
        if others:
            agreement[j] = np.average(cosine[j, others], weights=votes[others])
    middle = _weighted_median(agreement[camp], votes[camp])
    united = clients > 2 and values[-1] > -1.25 * values[0] and middle > 0
    bounded = np.minimum(n, (cap if united else 1) * np.median(n))
    weights = bounded * votes * np.minimum(1, np.sort(norms)[(clients - 1) // 2] / np.maximum(norms, 1e-300))
    if united:
        sd = max(1.4826 * _weighted_median(np.abs(agreement - middle)[camp], votes[camp]), 0.05)
        weights = weights * np.clip(2 + (agreement - middle) / (tolerance * sd), 0, 1)
    return weights / weights.sum()


def _votes(x: Array, crowd: float) -> Array:
    """Clients with about the same update share one vote."""
    squared = _squared(x)
    middle = np.sort(squared, axis=1)[:, len(x) // 2]
    scale = crowd**2 * (np.median(middle) or middle.mean())
    return 1 / np.exp(-squared / scale).sum(axis=1) if scale > 0 else np.ones(len(x))


def concord(x: Array, n: Array, tolerance: float = 0.5, reach: float = 1.5) -> Array:
    """A first round: no history."""
    clients = range(len(x))
    u = np.array([_unit(x_j) for x_j in x])
    trust = np.ones(len(x))
    for _ in range(5):
        correlation = np.zeros(len(x))
        for j in clients:
            others = [i for i in clients if i != j and trust[i] > 0]
            if others:
                squares = [(u[i] @ u[j]) ** 2 for i in others]
                correlation[j] = np.sqrt(np.average(squares, weights=trust[others]))
        coherence = min(_coherence(u, trust), 0.2)
        agreement = coherence * _towards_others(u, trust) / (coherence + 0.2)
        usual, usual_correlation = (
            np.sort(values)[len(x) // 2 :].mean() for values in (agreement, correlation)
        )
        trust = np.clip(2 + 2 * agreement / (tolerance * max(usual, 0.15)), 0, 1)
        if usual_correlation > 0:
            trust *= np.clip((correlation / usual_correlation - 0.1) / 0.2, 0, 1)
    norms = np.linalg.norm(x, axis=1)
    limit = reach * np.sort(norms)[(len(x) - 1) // 2]
    lengths = norms * _towards_others(u, trust)
    weights = n * trust * [(limit / length) ** 2 if length > limit > 0 else 1 for length in lengths]
    return weights / weights.sum() if weights.sum() > 0 else n / n.sum()


def _towards_others(u: Array, trust: Array) -> Array:
    """The cosine of each direction with the sum of the others."""
    clients = range(len(u))
    others = [sum((trust[i] * u[i] for i in clients if i != j), np.zeros_like(u[j])) for j in clients]
    return np.array([u_j @ _unit(rest) for u_j, rest in zip(u, others, strict=True)])


def _coherence(u: Array, trust: Array) -> float:
    """The mean cosine between two updates; 0 if it is negative."""
    pairs = [(i, j) for i in range(len(u)) for j in range(i)]
    count = sum(trust[i] * trust[j] for i, j in pairs)
    cosines = sum(trust[i] * trust[j] * (u[i] @ u[j]) for i, j in pairs)
    return float(np.clip(cosines / count, 0, 1)) if count > 0 else 0.0


def _unit(vector: Array) -> Array:
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values, kind="stable")
    return float(values[order][np.argmax(np.cumsum(weights[order]) >= weights.sum() / 2)])


def ordered(values: Array, weights: Array) -> tuple[Array, Array]:
    order = np.argsort(values, kind="stable")
    return values[order], weights[order] / weights.sum()


def median(means: Array, variances: Array, weights: Array) -> tuple[Array, None]:
    result = []
    for column in means.T:
        values, shares = ordered(column, weights)
        before = 0.0
        middle = []
        for value, share in zip(values, shares, strict=True):
            if share > 0 and before <= 0.5 + 1e-9 and before + share >= 0.5 - 1e-9:
                middle.append(value)
            before += share
        result.append(np.mean(middle))
    return np.array(result), None


def trimmed_mean(means: Array, variances: Array, weights: Array, trim: float = 0.2) -> tuple[Array, None]:
    result = []
    for column in means.T:
        values, shares = ordered(column, weights)
        total = before = kept = 0.0
        for value, share in zip(values, shares, strict=True):
            inside = max(0.0, min(before + share, 1 - trim) - max(before, trim))
            total, kept, before = total + inside * value, kept + inside, before + share
        result.append(total / kept)
    return np.array(result), None
