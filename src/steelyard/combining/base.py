"""The base class of combining rules."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from steelyard.types import Combined, Stack


class Combiner(ABC):
    """Merges the messages of a round, given weights.

    Must work on each coordinate separately, unless it is a rule for factors (`merges_products`).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"mean"})
    """The slots of a message that the rule reads."""

    allows_negative_weights: ClassVar[bool] = True
    """Whether negative weights have a meaning for the rule."""

    merges_products: ClassVar[bool] = False
    """Whether the rule merges factors by their products (`LowRank`)."""

    @abstractmethod
    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        """Merge the stack [J, K] with weights [J] float64."""
