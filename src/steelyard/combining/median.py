"""The coordinate-wise median (Yin et al., 2018)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from steelyard.combining.base import Combiner
from steelyard.combining.ordering import Array, mean_of_ordered
from steelyard.types import Combined, Stack

MIDDLE = 1e-9  # weights that meet this close to one half leave two values in the middle


@dataclass(frozen=True)
class Median(Combiner):
    """Of each coordinate, the value with half of the weight on either side; of two such values, the mean."""

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        def keep(borders: Array) -> Array:
            starts, ends = borders[..., :-1], borders[..., 1:]
            middle = (ends >= 0.5 - MIDDLE) & (starts <= 0.5 + MIDDLE) & (ends > starts)
            return np.asarray(middle, dtype=np.float64)

        return Combined(mean_of_ordered(stack.mean, weights, keep))
