"""One row for each rule: settings to try, and the same rule written naively in float64 numpy.

A rule that is listed in its folder's `__all__` and has no row here fails `test_every_rule_has_a_row`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steelyard.combining import Combiner, Mean
from steelyard.weighing import Samples, Uniform, Weigher

Array = NDArray[np.float64]


class WeigherCase(NamedTuple):
    rule: Weigher
    reference: Callable[[Array, Array], Array]
    """(updates [J, K], counts [J]) -> weights [J] of a first round."""


class CombinerCase(NamedTuple):
    rule: Combiner
    reference: Callable[[Array, Array, Array], tuple[Array, Array | None]]
    """(means [J, K], variances [J, K], weights [J]) -> mean [K], variance [K] or None."""


def samples(updates: Array, counts: Array) -> Array:
    return counts / counts.sum()


def capped_samples(updates: Array, counts: Array) -> Array:
    bounded = np.array([min(count, 2 * np.median(counts)) for count in counts])
    return bounded / bounded.sum()


def uniform(updates: Array, counts: Array) -> Array:
    return np.array([1 / len(updates) for _ in updates])


def mean(means: Array, variances: Array, weights: Array) -> tuple[Array, None]:
    return sum(weight * row for weight, row in zip(weights, means, strict=True)), None


WEIGHERS: dict[str, list[WeigherCase]] = {
    "samples": [WeigherCase(Samples(), samples), WeigherCase(Samples(cap=2.0), capped_samples)],
    "uniform": [WeigherCase(Uniform(), uniform)],
}

COMBINERS: dict[str, list[CombinerCase]] = {
    "mean": [CombinerCase(Mean(), mean)],
}
