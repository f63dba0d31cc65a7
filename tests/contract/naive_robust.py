"""The robust rules and baselines in the notation of their papers: float64, on the updates X themselves,
coordinate by coordinate, no inner products.

Weighing: (updates [J, K], counts [J]) -> weights [J] of a first round.
Combining: (means [J, K], variances [J, K], weights [J]) -> mean [K], and no variance.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

T = 1e-9  # the rules' tolerance


def geometric_median(x: Array, n: Array, power: float = 0.0, cap: float = 3.0) -> Array:
    """Smoothed Weiszfeld."""
    prior = np.minimum(n, cap * np.median(n)) ** power
    prior = prior / prior.sum()
    apart = np.sqrt([np.sort(row)[len(x) // 2] for row in _squared(x)])
    scale = max(_lower_median(apart), 1e-6 * _lower_median(np.linalg.norm(x, axis=1)))
    if scale == 0:
        a = prior * (apart == 0)
        return a / a.sum()
    nu = 1e-6 * scale
    a = prior / np.maximum(apart, nu)
    a = a / a.sum()
    for _ in range(100):
        distance = np.array([np.linalg.norm(x_j - a @ x) for x_j in x])
        a_before, a = a, prior / np.maximum(distance, nu)
        a = a / a.sum()
        if np.abs(a - a_before).max() <= T:
            break
    return a


def _lower_median(values: Array) -> float:
    return float(np.sort(values)[(len(values) - 1) // 2])


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
    related = [j for j in range(clients) if max(x.shape[1] * cosine[j] ** 2) >= 9]
    longest = 3 * _lower_median(norms[related]) if related else np.inf
    counted = [j for j in range(clients) if j in related or norms[j] <= longest]
    counted = counted if len(counted) >= max(3, clients / 3) else list(range(clients))
    votes = every_vote = _votes(x, crowd, counted)
    votes = np.array([votes[j] if j in counted else 0 for j in range(clients)])
    values, vectors = np.linalg.eigh(np.sqrt(np.outer(votes, votes)) * cosine)
    sides = [vectors[:, -1] > 0, vectors[:, -1] <= 0]
    within = [(votes * side) @ cosine @ (votes * side) for side in sides]
    camp = max(zip(sides, within, strict=True), key=lambda pair: (round(votes[pair[0]].sum()), pair[1]))[0]
    agreement = np.zeros(clients)
    for j in range(clients):
        others = [i for i in counted if camp[i] and i != j]
        if others:
            agreement[j] = np.average(cosine[j, others], weights=votes[others])
    middle = _weighted_median(agreement[camp], votes[camp])
    united = clients > 2 and values[-1] > -1.25 * values[0] and middle > 0
    bounded = np.minimum(n, (cap if united else 1) * np.median(n))
    limit = min(np.sort(norms[some])[(len(some) - 1) // 2] for some in (counted, list(range(clients))))
    weights = bounded * every_vote * np.minimum(1, limit / np.maximum(norms, 1e-300))
    if united:
        sd = max(1.4826 * _weighted_median(np.abs(agreement - middle)[camp], votes[camp]), 0.05)
        weights = weights * np.clip(2 + (agreement - middle) / (tolerance * sd), 0, 1)
    return weights / weights.sum()


def _votes(x: Array, crowd: float, counted: list[int]) -> Array:
    """Clients with about the same update share one vote."""
    squared = _squared(x)
    middle = np.sort(squared[counted][:, counted], axis=1)[:, len(counted) // 2]
    scale = crowd**2 * (np.median(middle) or middle.mean())
    return 1 / np.exp(-squared / scale).sum(axis=1) if scale > 0 else np.ones(len(x))


def concord(x: Array, n: Array, tolerance: float = 0.5, reach: float = 1.5) -> Array:
    """A first round: no history."""
    clients = range(len(x))
    u = np.array([_unit(x_j) for x_j in x])
    trust = np.ones(len(x))
    if _coherence(u, trust) <= 0.001:
        _, vectors = np.linalg.eigh(u @ u.T - np.diag(np.diag(u @ u.T)))
        sides = [vectors[:, -1] > 0, vectors[:, -1] <= 0]
        camp = max(sides, key=lambda side: (side.sum(), side @ (u @ u.T) @ side - side.sum()))
        trust = camp.astype(float) if camp.sum() > len(x) / 2 else trust
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
