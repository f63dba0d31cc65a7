"""The geometric median (Pillutla et al., "Robust Aggregation for Federated Learning")."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.errors import COUNT, NOT_NEGATIVE, POSITIVE, UP_TO_INFINITY, check_settings
from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import EXAMPLES, Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.steps import (
    FixedPoint,
    fixed_point,
    lower_median,
    normalised,
    relative_lengths,
    sample_prior,
)

DISTANCE = Reason(
    "distance",
    "distance",
    less="its updates were far from the median of all updates",
    more="its updates were close to the median of all updates",
    power=-1.0,
    relative=True,
)
MIN_DISTANCE = 1e-6  # in median norms: smaller distances are rounding


@dataclass(frozen=True)
class GeometricMedian(Weigher):
    """The point with the smallest sum of distances to the updates, by the smoothed Weiszfeld algorithm.

    a_j ∝ n_j^samples / max(ν, ‖x_j − y‖), where ν is `smoothing` times the typical distance between updates.
    Neither ν nor the start uses the mean, which a single client can move anywhere.
    """

    samples: float = 0.0
    cap: float = 3.0
    smoothing: float = 1e-6
    iterations: int = 100
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        where = "weighing rule 'geometric-median': "
        check_settings(where, self, samples=NOT_NEGATIVE, cap=UP_TO_INFINITY, smoothing=POSITIVE)
        check_settings(where, self, iterations=COUNT, tolerance=NOT_NEGATIVE)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return (DISTANCE, EXAMPLES) if self.samples else (DISTANCE,)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        prior = sample_prior(round.num_examples, self.samples, self.cap)
        apart = geometry.middle_distances
        nu = self.smoothing * max(lower_median(apart), MIN_DISTANCE * lower_median(geometry.norms))
        if not bool(nu > 0):  # more than half of the updates are 0
            weights = normalised(prior * (apart == 0))
            return Weighed(weights, state, {"distance": apart, **FixedPoint(weights, 0, True).evidence})

        def step(weights: Tensor) -> Tensor:
            return normalised(prior / geometry.distances(weights).sqrt().clamp(min=nu))

        start = normalised(prior / apart.clamp(min=nu))
        lengths = relative_lengths(geometry.norms)
        result = fixed_point(step, start, self.iterations, self.tolerance, lengths)
        distance = geometry.distances(result.weights).sqrt()
        return Weighed(result.weights, state, {"distance": distance, **result.evidence})
