"""The base class of weighing rules."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from steelyard.types import EMPTY, RoundInfo, State, Weighed
from steelyard.verdicts.reasons import Reason
from steelyard.weighing.geometry import Geometry


class Weigher(ABC):
    """Decides how much each client counts.

    An instance holds settings only. What a rule remembers between rounds is passed to it as `state` and
    returned in `Weighed.state`.
    """

    offers: ClassVar[frozenset[str]] = frozenset()
    """Names of the vectors that `offer` sends to the clients."""

    reads_updates: ClassVar[bool] = False
    """Whether the rule needs more than inner products: `Geometry.mix`, `Geometry.inner` or the updates."""

    needs_products: ClassVar[bool] = True
    """Whether the rule needs inner products. Norms are then computed in the same read of the updates."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Words for the figures that the weights depend on, the one to quote for every client first.

        `factor` and `shows` name columns of the evidence, or `num_examples` or `norm`, which are always
        recorded.
        """
        return ()

    @property
    def may_be_negative(self) -> bool:
        """Whether a client can get a negative weight."""
        return False

    def init(self) -> State:
        """The state before the first round."""
        return EMPTY

    def check(self, clients: int) -> None:  # noqa: B027 - few rules have such settings
        """Raise an InputError if the settings make no sense for this number of clients in a round."""

    @abstractmethod
    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        """Weights that sum to 1, the new state and the evidence for one round."""

    def offer(self, state: State) -> Mapping[str, Tensor]:
        """Vectors [K] that the server sends to the clients with the next model."""
        return EMPTY
