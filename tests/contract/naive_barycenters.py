"""The merging rules of BA-BFL in the notation of the paper: float64, coordinate by coordinate.

(means [N, K], variances [N, K], weights [N]) -> mean [K], variance [K].
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Merge = Callable[[Array, Array, Array], tuple[Array, Array]]


def eaa(mu: Array, sigma2: Array, w: Array) -> tuple[Array, Array]:
    return _each(mu, sigma2, lambda m, s: (_mean(w, m), _mean(w, s)))


def gaa(mu: Array, sigma2: Array, w: Array) -> tuple[Array, Array]:
    return _each(
        mu, sigma2, lambda m, s: (_mean(w, m), sum(w_k**2 * s_k for w_k, s_k in zip(w, s, strict=True)))
    )


def aalv(mu: Array, sigma2: Array, w: Array) -> tuple[Array, Array]:
    return _each(mu, sigma2, lambda m, s: (_mean(w, m), np.exp(_mean(w, np.log(s)))))


def rklb(mu: Array, sigma2: Array, w: Array) -> tuple[Array, Array]:
    """Eq. 8."""

    def one(m: Array, s: Array) -> tuple[float, float]:
        variance = 1 / _mean(w, 1 / s)
        return variance * _mean(w, m / s), variance

    return _each(mu, sigma2, one)


def wb(mu: Array, sigma2: Array, w: Array) -> tuple[Array, Array]:
    """Eq. 9."""
    return _each(mu, sigma2, lambda m, s: (_mean(w, m), _mean(w, np.sqrt(s)) ** 2))


def forward_kl(mu: Array, sigma2: Array, w: Array) -> tuple[Array, Array]:
    """The first two moments of the mixture."""
    return _each(mu, sigma2, lambda m, s: (_mean(w, m), _mean(w, s + m**2) - _mean(w, m) ** 2))


def alpha(mu: Array, sigma2: Array, w: Array, a: float = 0.5) -> tuple[Array, Array]:
    """Theorem 1, summed up on a fine grid."""

    def one(m: Array, s: Array) -> tuple[float, float]:
        reach = 12 * np.sqrt(s.max())
        x = np.linspace(m.min() - reach, m.max() + reach, 20_001)
        p = [
            np.exp(-((x - m_k) ** 2) / (2 * s_k)) / np.sqrt(2 * np.pi * s_k)
            for m_k, s_k in zip(m, s, strict=True)
        ]
        density = sum(w_k * p_k**a for w_k, p_k in zip(w, p, strict=True)) ** (1 / a)
        density = density / density.sum()
        mean = (density * x).sum()
        return mean, (density * (x - mean) ** 2).sum()

    return _each(mu, sigma2, one)


def limited(rule: Merge, ratio: float) -> Merge:
    """The rule on variances clamped to within a factor of `ratio` of each coordinate's median."""

    def merge(mu: Array, sigma2: Array, w: Array) -> tuple[Array, Array]:
        medians = [np.median(column) for column in sigma2.T]
        columns = [
            [min(max(value, median / ratio), median * ratio) for value in column]
            for column, median in zip(sigma2.T, medians, strict=True)
        ]
        return rule(mu, np.array(columns).T, w)

    return merge


def _mean(w: Array, values: Array) -> float:
    return float(sum(w_k * value for w_k, value in zip(w, values, strict=True)))


def _each(
    mu: Array, sigma2: Array, one: Callable[[Array, Array], tuple[float, float]]
) -> tuple[Array, Array]:
    mean, variance = zip(*(one(m, s) for m, s in zip(mu.T, sigma2.T, strict=True)), strict=True)
    return np.array(mean), np.array(variance)
