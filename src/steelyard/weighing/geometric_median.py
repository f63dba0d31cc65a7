"""The geometric median (Pillutla et al., "Robust Aggregation for Federated Learning")."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.steps import fixed_point, normalised, sample_prior, typical


@dataclass(frozen=True)
class GeometricMedian(Weigher):
    """The point with the smallest sum of distances to the updates, by the smoothed Weiszfeld algorithm.

    a_j ∝ n_j^samples / max(ν, ‖x_j − y‖), where ν is `smoothing` times the typical distance from the mean.
    """

    samples: float = 0.0
    cap: float = 3.0
    smoothing: float = 1e-6
    iterations: int = 100
    tolerance: float = 1e-9

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        prior = sample_prior(round.num_examples, self.samples, self.cap)
        nu = self.smoothing * typical(geometry.distances(prior).sqrt())

        def step(weights: Tensor) -> Tensor:
            distance = geometry.distances(weights).sqrt()
            return normalised(prior / distance.clamp(min=nu)) if bool(nu > 0) else prior

        result = fixed_point(step, prior, self.iterations, self.tolerance)
        distance = geometry.distances(result.weights).sqrt()
        return Weighed(result.weights, state, {"distance": distance, **result.evidence})
