"""What a combining rule is."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from steelyard.types import Combined, Stack


class Combiner(ABC):
    """How are the messages merged, given weights?"""

    needs: ClassVar[frozenset[str]] = frozenset({"mean"})
    """The slots of a message that it reads."""

    @abstractmethod
    def combine(self, stack: Stack, weights: Tensor) -> Combined: ...
