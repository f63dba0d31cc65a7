"""The base class of rules that merge LoRA adapters by the products of their factors."""

from abc import abstractmethod
from typing import NamedTuple

from torch import Tensor

from steelyard.combining.mean import Mean
from steelyard.layout import Pair


class Merged(NamedTuple):
    """The result of merging products."""

    change: Tensor
    """[K], what to add to the factors that came down."""
    rank_error: Tensor
    """‖M − M_R‖ / ‖M‖ over all layers: the share of the merged products that rank R cannot hold."""


class ProductCombiner(Mean):
    """Merges factors by their products. Needs the sharing `adapter`.

    Where a federation merges products, updates are also weighed, screened and clipped by them.
    """

    @abstractmethod
    def merge(self, updates: Tensor, factors: Tensor, start: Tensor, pairs: tuple[Pair, ...]) -> Merged:
        """Merge updates [J, K] of the vector `start` [K], each multiplied by its factor [J] float64.

        `pairs` are the places of the factors of each product in these vectors.
        """
