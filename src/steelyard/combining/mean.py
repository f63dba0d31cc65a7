"""The weighted mean."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.combining.base import Combiner
from steelyard.threads import in_parts
from steelyard.types import Combined, Stack

PART_VALUES = 1 << 24  # of the updates from which a part is worth a thread of its own
MAX_PARTS = 8


@dataclass(frozen=True)
class Mean(Combiner):
    """The weighted mean of the updates, Σ a_j x_j."""

    def combine_scaled(self, stack: Stack, weights: Tensor, scale: Tensor | None) -> Combined:
        """Factors on updates are factors on their weights: the updates are not copied."""
        return self.combine(stack, weights if scale is None else weights * scale)

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        return Combined(weighted_sum(weights.to(stack.mean.dtype), stack.mean))


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Σ a_j x_j of rows [J, K]; of many values, several parts of the coordinates at the same time."""
    parts = max(1, min(MAX_PARTS, rows.numel() // PART_VALUES))
    edges = [rows.shape[1] * part // parts for part in range(parts + 1)]
    result = rows.new_empty(rows.shape[1])

    def add_up(columns: slice) -> None:
        torch.mv(rows[:, columns].T, weights, out=result[columns])

    in_parts(add_up, [slice(*edge) for edge in itertools.pairwise(edges)])
    return result
