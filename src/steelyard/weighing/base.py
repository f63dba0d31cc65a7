"""What a weighing rule is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from steelyard.types import EMPTY, RoundInfo, State, Weighed
from steelyard.weighing.geometry import Geometry


class Weigher(ABC):
    """Who counts, and how much? Settings only: what a rule remembers is the state it is given and returns."""

    offers: ClassVar[frozenset[str]] = frozenset()
    """Names of the vectors that `offer` sends down to the clients."""

    def init(self) -> State:
        return EMPTY

    @abstractmethod
    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed: ...

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return EMPTY
