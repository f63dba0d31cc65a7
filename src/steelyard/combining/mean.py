"""The weighted mean."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.combining.base import Combiner
from steelyard.types import Combined, Stack


@dataclass(frozen=True)
class Mean(Combiner):
    """The weighted mean of the updates, Σ a_j x_j."""

    def combine_scaled(self, stack: Stack, weights: Tensor, scale: Tensor | None) -> Combined:
        """Factors on updates are factors on their weights: the updates are not copied."""
        return self.combine(stack, weights if scale is None else weights * scale)

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        return Combined(weights.to(stack.mean.dtype) @ stack.mean)
