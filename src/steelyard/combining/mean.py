"""The weighted mean."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.combining.base import Combiner
from steelyard.types import Combined, Stack


@dataclass(frozen=True)
class Mean(Combiner):
    """The weighted mean of the updates, Σ a_j x_j."""

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        return Combined(weights.to(stack.mean.dtype) @ stack.mean)
