"""The base class of combining rules."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from steelyard.types import Combined, Stack


class Combiner(ABC):
    """Merges the messages of a round, given weights.

    Must work on each coordinate separately, unless it merges products of factors (`ProductCombiner`).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"mean"})
    """The slots of a message that the rule reads."""

    allows_negative_weights: ClassVar[bool] = True
    """Whether negative weights have a meaning for the rule."""

    @abstractmethod
    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        """Merge the stack [J, K] with weights [J] float64."""
