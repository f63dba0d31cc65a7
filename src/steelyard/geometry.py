"""The geometry of a round: inner products of its updates.

Every rule that asks how much a client counts needs only the Gram matrix G = X Xᵀ of the updates, J×J, and
perhaps the inner products with one more vector. Both are accumulated in float64 over blocks of coordinates,
so a rule iterates in J×J and the parameters are read once.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

BLOCK = 1 << 16  # coordinates; a block of 100 float64 rows is 50 MB


class Geometry:
    """The updates X [J, K] of a round, seen through their inner products."""

    def __init__(self, updates: Tensor) -> None:
        self.updates = updates

    def __len__(self) -> int:
        return len(self.updates)

    @cached_property
    def gram(self) -> Tensor:
        """G = X Xᵀ, [J, J] float64."""
        gram = torch.zeros(len(self), len(self), dtype=torch.float64)
        for block in self._blocks():
            gram.addmm_(block, block.T)
        return gram

    @cached_property
    def norms(self) -> Tensor:
        """‖x_j‖, [J] float64."""
        squares = torch.zeros(len(self), dtype=torch.float64)
        for block in self._blocks():
            squares += block.square().sum(dim=1)
        return squares.sqrt()

    def inner(self, vector: Tensor) -> Tensor:
        """⟨x_j, v⟩ for one more vector v [K], [J] float64."""
        products = torch.zeros(len(self), dtype=torch.float64)
        for start, block in zip(range(0, len(vector), BLOCK), self._blocks(), strict=True):
            products += block @ vector[start : start + BLOCK].double()
        return products

    def mix(self, weights: Tensor) -> Tensor:
        """Σ a_j x_j, [K], in the dtype of the updates."""
        return weights.to(self.updates.dtype) @ self.updates

    def _blocks(self) -> Iterator[Tensor]:
        for start in range(0, self.updates.shape[1], BLOCK):
            yield self.updates[:, start : start + BLOCK].double()
