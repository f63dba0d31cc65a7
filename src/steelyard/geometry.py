"""The geometry of a round: inner products of its updates.

Every rule that asks how much a client counts needs only the Gram matrix G = X Xᵀ of the updates, J×J, and
perhaps the inner products with one more vector. Both are accumulated in float64 over blocks of coordinates,
so a rule iterates in J×J and the parameters are read once.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

BLOCK_BYTES = 4 << 20  # of float64, so that a block is still in the cache when it is read again


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
        for _, block in self._blocks():
            gram.addmm_(block, block.T)
        return gram

    @cached_property
    def norms(self) -> Tensor:
        """‖x_j‖, [J] float64."""
        clients, size = self.updates.shape
        norms = torch.zeros(clients, dtype=torch.float64)
        rows = max(1, BLOCK_BYTES // (32 * max(size, 1)))
        wide = torch.empty(min(rows, clients), size, dtype=torch.float64)
        for start in range(0, clients, rows):
            part = self.updates[start : start + rows]
            torch.linalg.vector_norm(wide[: len(part)].copy_(part), dim=1, out=norms[start : start + rows])
        return norms

    def inner(self, vector: Tensor) -> Tensor:
        """⟨x_j, v⟩ for one more vector v [K], [J] float64."""
        if vector.shape != self.updates.shape[1:]:
            raise ValueError(
                f"a vector of {tuple(vector.shape)} beside updates of {tuple(self.updates.shape)}"
            )
        products = torch.zeros(len(self), dtype=torch.float64)
        for columns, block in self._blocks():
            products += block @ vector[columns].double()
        return products

    def mix(self, weights: Tensor) -> Tensor:
        """Σ a_j x_j, [K], in the dtype of the updates."""
        return weights.to(self.updates.dtype) @ self.updates

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        width = block_width(len(self))
        for start in range(0, self.updates.shape[1], width):
            columns = slice(start, start + width)
            yield columns, self.updates[:, columns].double()


def block_width(rows: int) -> int:
    """The coordinates of a block."""
    return max(256, BLOCK_BYTES // (8 * max(rows, 1)))
