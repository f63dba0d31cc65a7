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

    def combine_scaled(self, stack: Stack, weights: Tensor, scale: Tensor | None) -> Combined:
        """Merge the stack with each update multiplied by its factor [J]; None: all 1."""
        if scale is None or bool((scale == 1).all()):
            return self.combine(stack, weights)
        return self.combine(scaled(stack, scale), weights)

    @abstractmethod
    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        """Merge the stack [J, K] with weights [J] float64."""


def scaled(stack: Stack, scale: Tensor) -> Stack:
    """A copy of the stack with each update multiplied by its factor [J]."""
    return stack._replace(mean=stack.mean * scale.to(stack.mean.dtype).unsqueeze(1))
