"""The coordinate-wise median (Yin et al., 2018)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from steelyard.combining.base import Combiner
from steelyard.combining.ordering import Array, mean_of_ordered
from steelyard.types import Combined, Stack

TOLERANCE = 1e-9  # cumulative weights this close to 0.5 count as 0.5, which leaves two middle values


@dataclass(frozen=True)
class Median(Combiner):
    """The weighted median of each coordinate; the mean of the two middle values where there are two."""

    allows_negative_weights: ClassVar[bool] = False

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        def keep(borders: Array) -> Array:
            starts, ends = borders[..., :-1], borders[..., 1:]
            middle = (ends >= 0.5 - TOLERANCE) & (starts <= 0.5 + TOLERANCE) & (ends > starts)
            return np.asarray(middle, dtype=np.float64)

        return Combined(mean_of_ordered(stack.mean, weights, keep))
