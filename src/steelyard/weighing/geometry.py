"""The geometry of a round: inner products of its updates.

Weighing rules need only the Gram matrix of the updates, J×J, and sometimes the inner products with one more
vector. Both are accumulated in float64 over blocks of coordinates. So a rule iterates on J×J numbers, the
updates are read once, and they can be a matrix, a list of vectors or a file larger than memory.

Inner products are those of the differences from one of the updates, the *reference*, which has the median
norm. What all updates have in common then cancels before anything is multiplied, and an update of extreme
size affects only its own products.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Updates = Tensor | Sequence[Tensor | np.memmap] | np.memmap
"""J updates of K coordinates: a matrix, vectors of equal length, or a file or some of its rows."""

BLOCK_BYTES = 4 << 20  # size of a float64 block: small enough to stay in the cache between two reads
ROWS_PER_READ = 16  # rows of a file to read before its pages, up to 2 MB per row, are released
PANEL_ROWS = 128  # rows of the Gram matrix per product; only the lower triangle is computed


@dataclass(frozen=True, eq=False)
class Products:
    """Inner products of the differences d_j = x_j − r from a reference r."""

    gram: Tensor
    """⟨d_i, d_j⟩, [J, J] float64."""
    along: Tensor
    """⟨d_j, r⟩, [J]."""
    square: Tensor
    """⟨r, r⟩."""

    def distances(self, coefficients: Tensor, reference: Tensor) -> Tensor:
        """‖x_j − y‖² for y = Σ a_i d_i + s r, [J]. What all updates share cancels before squaring."""
        mixed, rest = self.gram @ coefficients, 1 - reference
        from_differences = self.gram.diagonal() - 2 * mixed + coefficients @ mixed
        from_reference = 2 * rest * (self.along - coefficients @ self.along) + rest.square() * self.square
        return (from_differences + from_reference).clamp_(min=0.0)


class Geometry:
    """Norms, distances and inner products of the updates X [J, K] of a round."""

    def __init__(self, updates: Updates) -> None:
        self.updates = updates

    def __len__(self) -> int:
        return len(self.updates)

    @property
    def size(self) -> int:
        """K, the number of coordinates."""
        return int(self.updates[0].shape[0])

    @cached_property
    def norms(self) -> Tensor:
        """‖x_j‖, [J] float64."""
        norms = torch.zeros(len(self), dtype=torch.float64)
        step = max(1, BLOCK_BYTES // (32 * max(self.size, 1)))
        for start in range(0, len(self), step):
            part = in_memory(self.updates[start : start + step])
            torch.linalg.vector_norm(part.double(), dim=1, out=norms[start : start + step])
        return norms

    @cached_property
    def products(self) -> Products:
        """The inner products that all other quantities come from. The one expensive pass over the updates."""
        clients = len(self)
        in_one = isinstance(self.updates, Tensor)  # norms in the dtype of a matrix are exact enough here
        lengths = torch.linalg.vector_norm(self.updates, dim=1) if in_one else self.norms
        reference = int(lengths.argsort(stable=True)[(clients - 1) // 2])
        gram = torch.zeros(clients, clients, dtype=torch.float64)
        along, square = torch.zeros(clients, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for _, block in blocks(self.updates):
            centre = block[reference].clone()
            block -= centre
            for start in range(0, clients, PANEL_ROWS):
                stop = start + PANEL_ROWS
                gram[start:stop, :stop].addmm_(block[start:stop], block[:stop].T)
            along += block @ centre
            square += centre @ centre
        return Products(gram.tril() + gram.tril(-1).T, along, square)

    @cached_property
    def gram(self) -> Tensor:
        """G = X Xᵀ, [J, J] float64."""
        part = self.products
        return part.gram + part.along.unsqueeze(0) + part.along.unsqueeze(1) + part.square

    @cached_property
    def pairwise(self) -> Tensor:
        """‖x_i − x_j‖², [J, J] float64."""
        squares = self.products.gram.diagonal()
        distances = squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * self.products.gram
        return distances.clamp_(min=0.0).fill_diagonal_(0.0)

    @cached_property
    def middle_distances(self) -> Tensor:
        """Each update's distance to the middle one of the others, [J] float64.

        A minority of clients cannot change this for the rest, as it could the distance from a mean.
        """
        return self.pairwise.sort(dim=1).values[:, len(self) // 2].sqrt()

    def distances(self, weights: Tensor) -> Tensor:
        """‖x_j − Σ a_i x_i‖², [J] float64, for any weights a."""
        return self.products.distances(weights, weights.sum())

    def around(self, weights: Tensor) -> Tensor:
        """⟨x_i − y, x_j − y⟩ for y = Σ a_i x_i and weights a that sum to 1, [J, J] float64."""
        mixed = self.products.gram @ weights
        return self.products.gram - mixed.unsqueeze(0) - mixed.unsqueeze(1) + weights @ mixed

    def inner(self, vector: Tensor) -> Tensor:
        """⟨x_j, v⟩ for one more vector v [K], [J] float64."""
        if vector.shape != (self.size,):
            raise ValueError(
                f"vector has shape {tuple(vector.shape)}, but updates have {(len(self), self.size)}"
            )
        products = torch.zeros(len(self), dtype=torch.float64)
        for columns, block in blocks(self.updates):
            products += block @ vector[columns].double()
        return products

    def mix(self, weights: Tensor) -> Tensor:
        """Σ a_j x_j, [K], in the dtype of the updates."""
        if isinstance(self.updates, Tensor):
            return weights.to(self.updates.dtype) @ self.updates
        mixed = torch.empty(self.size, dtype=in_memory(self.updates[:1]).dtype)
        for columns, block in blocks(self.updates):
            mixed[columns] = weights @ block
        return mixed

    def scaled(self, factors: Tensor) -> "Geometry":
        """The geometry of the updates multiplied by factors [J]. Does not read the updates again."""
        return _Scaled(self, factors)

    def blended(self, mixing: Tensor) -> "Geometry":
        """The geometry of M X for a matrix M [J, J] whose rows sum to 1. Does not read the updates again."""
        return _Blended(self, mixing)


class _Blended(Geometry):
    """The geometry of mixtures M X of another geometry's updates X."""

    def __init__(self, base: Geometry, mixing: Tensor) -> None:
        super().__init__(base.updates)
        self.base, self.mixing = base, mixing

    @cached_property
    def norms(self) -> Tensor:
        return self.gram.diagonal().clamp(min=0.0).sqrt()

    @cached_property
    def products(self) -> Products:
        part = self.base.products
        return Products(self.mixing @ part.gram @ self.mixing.T, self.mixing @ part.along, part.square)

    def inner(self, vector: Tensor) -> Tensor:
        return self.mixing @ self.base.inner(vector)

    def mix(self, weights: Tensor) -> Tensor:
        return self.base.mix(self.mixing.T @ weights)


class _Scaled(Geometry):
    """The geometry of updates c_j x_j, from that of the x_j."""

    def __init__(self, base: Geometry, factors: Tensor) -> None:
        super().__init__(base.updates)
        self.base, self.factors = base, factors

    @cached_property
    def norms(self) -> Tensor:
        return self.factors * self.base.norms

    @cached_property
    def products(self) -> Products:
        """c_j x_j − r = c_j d_j + (c_j − 1) r."""
        part, c, rest = self.base.products, self.factors, self.factors - 1
        mixed = torch.outer(c * part.along, rest)
        gram = torch.outer(c, c) * part.gram + mixed + mixed.T + torch.outer(rest, rest) * part.square
        return Products(gram, c * part.along + rest * part.square, part.square)

    def inner(self, vector: Tensor) -> Tensor:
        return self.factors * self.base.inner(vector)

    def mix(self, weights: Tensor) -> Tensor:
        return self.base.mix(self.factors * weights)


def blocks(updates: Updates) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of coordinates of the updates in float64. A block may be modified until the next one is read."""
    size = int(updates[0].shape[0])
    width = block_width(len(updates))
    buffer = torch.empty(len(updates), min(width, size), dtype=torch.float64)
    for start in range(0, size, width):
        columns = slice(start, min(start + width, size))
        block = buffer[:, : columns.stop - start]
        if isinstance(updates, Tensor | np.memmap):
            block.copy_(in_memory(updates[:, columns]))
        else:
            for row, update in zip(block, updates, strict=True):
                row.copy_(in_memory(update[columns]))
        yield columns, block


def block_width(rows: int) -> int:
    """The number of coordinates per block."""
    return max(256, BLOCK_BYTES // (8 * max(rows, 1)))


def in_memory(part: Updates | NDArray[Any]) -> Tensor:
    """A part of the updates in memory: a matrix, or one vector."""
    if isinstance(part, Tensor):
        return part
    if not isinstance(part, np.ndarray):
        return torch.stack([in_memory(row) for row in part])
    if part.ndim == 1:
        row = np.array(part)
        _release_pages(part)
        return torch.from_numpy(row)
    copied = np.empty(part.shape, part.dtype)
    for start in range(0, len(part), ROWS_PER_READ):
        copied[start : start + ROWS_PER_READ] = part[start : start + ROWS_PER_READ]
        _release_pages(part)
    return torch.from_numpy(copied)


def _release_pages(part: NDArray[Any]) -> None:
    """Release the memory of a mapped file's pages. Not in mode "c", where it would lose unsaved changes."""
    pages = getattr(part, "_mmap", None)
    if pages is not None and getattr(part, "mode", None) != "c" and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
