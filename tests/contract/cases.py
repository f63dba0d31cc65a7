"""One row for each rule: settings to try, and the same rule written naively in float64 numpy.

A rule that is listed in its folder's `__all__` and has no row here fails `test_every_rule_has_a_row`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import naive_barycenters as barycenters
import naive_inference as inference
import naive_robust as robust
import numpy as np
from numpy.typing import NDArray

from steelyard.combining import (
    Aalv,
    Alpha,
    Combiner,
    Eaa,
    ForwardKl,
    Gaa,
    LowRank,
    Mean,
    Median,
    Rklb,
    TrimmedMean,
    Wb,
)
from steelyard.weighing import (
    CenteredClipping,
    Concord,
    Consensus,
    GeometricMedian,
    IcovEm,
    IcovMle,
    IcovVb,
    IvarMle,
    IvarVb,
    Krum,
    Majority,
    MultiKrum,
    Nnm,
    Samples,
    Uniform,
    Weigher,
)

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
    "centered-clipping": [
        WeigherCase(CenteredClipping(), robust.centered_clipping),
        WeigherCase(CenteredClipping(iterations=1), partial(robust.centered_clipping, iterations=1)),
    ],
    "concord": [
        WeigherCase(Concord(), robust.concord),
        WeigherCase(Concord(tolerance=0.1, reach=0.6), partial(robust.concord, tolerance=0.1, reach=0.6)),
        WeigherCase(Concord(reach=np.inf), partial(robust.concord, reach=np.inf)),
    ],
    "consensus": [
        WeigherCase(Consensus(), samples),  # nothing to go along with yet
        WeigherCase(Consensus(gate="soft", gamma=2.0, momentum="samples", bound=1.0), samples),
    ],
    "geometric-median": [
        WeigherCase(GeometricMedian(), robust.geometric_median),
        WeigherCase(GeometricMedian(samples=1.0), partial(robust.geometric_median, power=1.0)),
    ],
    "icov-em": [WeigherCase(IcovEm(), inference.icov_em)],
    "icov-mle": [
        WeigherCase(IcovMle(), inference.icov_mle),
        WeigherCase(IcovMle(factors=3), partial(inference.icov_mle, factors=3)),
    ],
    "icov-vb": [
        WeigherCase(IcovVb(), inference.icov_vb),
        WeigherCase(IcovVb(factors=2), partial(inference.icov_vb, factors=2)),
    ],
    "ivar-mle": [WeigherCase(IvarMle(), inference.ivar_mle)],
    "ivar-vb": [WeigherCase(IvarVb(iterations=100), inference.ivar_vb)],
    "krum": [WeigherCase(Krum(), robust.krum), WeigherCase(Krum(f=0), partial(robust.krum, f=0))],
    "majority": [
        WeigherCase(Majority(), robust.majority),
        WeigherCase(Majority(tolerance=1.0, crowd=0.6), partial(robust.majority, tolerance=1.0, crowd=0.6)),
    ],
    "multi-krum": [
        WeigherCase(MultiKrum(), robust.multi_krum),
        WeigherCase(MultiKrum(f=2), partial(robust.multi_krum, f=2)),
    ],
    "nnm": [WeigherCase(Nnm(), robust.nnm), WeigherCase(Nnm(f=1), partial(robust.nnm, f=1))],
    "samples": [WeigherCase(Samples(), samples), WeigherCase(Samples(cap=2.0), capped_samples)],
    "uniform": [WeigherCase(Uniform(), uniform)],
}

COMBINERS: dict[str, list[CombinerCase]] = {
    "aalv": [
        CombinerCase(Aalv(), barycenters.aalv),
        CombinerCase(Aalv(variance_ratio_limit=1.5), barycenters.limited(barycenters.aalv, 1.5)),
    ],
    "alpha": [
        CombinerCase(Alpha(), barycenters.alpha),
        CombinerCase(
            Alpha(alpha=0.2, variance_ratio_limit=2.0),
            barycenters.limited(partial(barycenters.alpha, a=0.2), 2.0),
        ),
        CombinerCase(Alpha(alpha=0.0), barycenters.rklb),
        CombinerCase(Alpha(alpha=1.0), barycenters.forward_kl),
    ],
    "eaa": [
        CombinerCase(Eaa(), barycenters.eaa),
        CombinerCase(Eaa(variance_ratio_limit=1.5), barycenters.limited(barycenters.eaa, 1.5)),
    ],
    "forward-kl": [
        CombinerCase(ForwardKl(), barycenters.forward_kl),
        CombinerCase(ForwardKl(variance_ratio_limit=1.5), barycenters.limited(barycenters.forward_kl, 1.5)),
    ],
    "gaa": [
        CombinerCase(Gaa(), barycenters.gaa),
        CombinerCase(Gaa(variance_ratio_limit=1.5), barycenters.limited(barycenters.gaa, 1.5)),
    ],
    "low-rank": [CombinerCase(LowRank(), mean)],  # of what is in no product
    "mean": [CombinerCase(Mean(), mean)],
    "median": [CombinerCase(Median(), robust.median)],
    "rklb": [
        CombinerCase(Rklb(), barycenters.rklb),
        CombinerCase(Rklb(variance_ratio_limit=2.0), barycenters.limited(barycenters.rklb, 2.0)),
    ],
    "trimmed-mean": [
        CombinerCase(TrimmedMean(), robust.trimmed_mean),
        CombinerCase(TrimmedMean(trim=0.45), partial(robust.trimmed_mean, trim=0.45)),
    ],
    "wb": [
        CombinerCase(Wb(), barycenters.wb),
        CombinerCase(Wb(variance_ratio_limit=1.0), barycenters.limited(barycenters.wb, 1.0)),
    ],
}
