"""Centred clipping (Karimireddy et al., "Learning from History for Byzantine Robust Optimization")."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.errors import InputError
from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.krum import lowest
from steelyard.weighing.steps import TINY, normalised, typical


@dataclass(frozen=True)
class CenteredClipping(Weigher):
    """Repeatedly move a centre by the mean difference of the updates from it, each clipped to a radius.

    The centre starts at the update with the smallest sum of distances to the others. The default `radius` is
    the typical distance from that update.
    """

    radius: float | None = None
    iterations: int = 5

    reasons = (Reason("kept", "part kept", less="its updates were far from the centre and were shortened"),)

    def __post_init__(self) -> None:
        if self.radius is not None and not self.radius > 0:
            raise InputError(
                f"weighing rule 'centered-clipping': radius must be greater than 0, not {self.radius}."
            )
        if self.iterations < 1:
            raise InputError(
                f"weighing rule 'centered-clipping': iterations must be at least 1, not {self.iterations}."
            )

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        weights = normalised(lowest(geometry.pairwise.sqrt().sum(dim=1), 1))
        radius = typical(geometry.distances(weights).sqrt()) if self.radius is None else self.radius
        for _ in range(self.iterations):
            kept = (radius / geometry.distances(weights).sqrt().clamp(min=TINY)).clamp(max=1.0)
            weights = _moved(weights, kept)
        return Weighed(weights, state, {"kept": kept})


def _moved(weights: Tensor, kept: Tensor) -> Tensor:
    """The weights of v + mean_j c_j (x_j − v) on the updates, where v has the weights given."""
    return weights * (1 - kept.mean()) + kept / len(kept)
