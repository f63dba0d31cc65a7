"""The weighted mean."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.combining.base import Combiner
from steelyard.threads import in_parts, slices
from steelyard.types import Combined, Stack

PART_COLUMNS = 1 << 15  # coordinates of all rows that a thread sums; fewer take longer for each


@dataclass(frozen=True)
class Mean(Combiner):
    """The weighted mean of the updates, Σ a_j x_j."""

    def combine_scaled(self, stack: Stack, weights: Tensor, scale: Tensor | None) -> Combined:
        """Factors on updates are factors on their weights: the updates are not copied."""
        return self.combine(stack, weights if scale is None else weights * scale)

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        return Combined(weighted_sum(weights.to(stack.mean.dtype), stack.mean))


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Σ a_j x_j of rows [J, K], with several parts of the coordinates at the same time."""
    result = rows.new_empty(rows.shape[1])

    def add_up(columns: slice) -> None:
        torch.mv(rows[:, columns].T, weights, out=result[columns])

    in_parts(add_up, slices(rows.shape[1], PART_COLUMNS))
    return result
