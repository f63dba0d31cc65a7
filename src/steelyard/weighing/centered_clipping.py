"""Centred clipping (Karimireddy et al., "Learning from History for Byzantine Robust Optimization")."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.errors import InputError
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.krum import least
from steelyard.weighing.steps import TINY, normalised, typical


@dataclass(frozen=True)
class CenteredClipping(Weigher):
    """Move the centre by the mean of the differences from it, each cut to a radius; some times over.

    The centre starts at the update with the least sum of distances to the others. The radius, unless it is
    set, is the typical distance from there.
    """

    radius: float | None = None
    iterations: int = 5

    def __post_init__(self) -> None:
        if self.radius is not None and not self.radius > 0:
            raise InputError(f"weighing rule 'centered-clipping': radius must be above 0, not {self.radius}.")
        if self.iterations < 1:
            raise InputError(
                f"weighing rule 'centered-clipping': iterations must be at least 1, not {self.iterations}."
            )

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        weights = normalised(least(geometry.pairwise.sqrt().sum(dim=1), 1))
        radius = typical(geometry.distances(weights).sqrt()) if self.radius is None else self.radius
        for _ in range(self.iterations):
            kept = (radius / geometry.distances(weights).sqrt().clamp(min=TINY)).clamp(max=1.0)
            weights = _moved(weights, kept)
        return Weighed(weights, state, {"kept": kept})


def _moved(weights: Tensor, kept: Tensor) -> Tensor:
    """v + mean_j c_j (x_j − v), as weights on the updates."""
    return weights * (1 - kept.mean()) + kept / len(kept)
