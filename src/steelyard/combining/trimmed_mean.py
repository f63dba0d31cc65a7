"""The coordinate-wise trimmed mean (Yin et al., 2018)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from steelyard.combining.base import Combiner
from steelyard.combining.ordering import Array, mean_of_ordered
from steelyard.errors import InputError
from steelyard.types import Combined, Stack


@dataclass(frozen=True)
class TrimmedMean(Combiner):
    """The mean of each coordinate without the lowest and the highest `trim` share of the weight."""

    trim: float = 0.2

    allows_negative_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise InputError(
                f"combining rule 'trimmed-mean': trim must be at least 0 and less than 0.5, not {self.trim}."
            )

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        def keep(borders: Array) -> Array:
            return np.diff(borders.clip(self.trim, 1 - self.trim), axis=-1)

        return Combined(mean_of_ordered(stack.mean, weights, keep))
