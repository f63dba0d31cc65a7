"""The geometry of a round: inner products of its updates.

Every rule that asks how much a client counts needs only the Gram matrix of the updates, J×J, and perhaps the
inner products with one more vector. They are accumulated in float64 over blocks of coordinates, so a rule
iterates in J×J, the parameters are read once, and they may be a matrix, a list of vectors or a file that is
larger than memory.

Inner products are taken from one of the updates, the *reference*, whose norm is the median norm. What the
updates have in common then cancels before anything is multiplied, and an update of absurd size spoils only
the products that it is part of.
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

Rows = Tensor | Sequence[Tensor] | np.memmap
"""J updates of K coordinates: a matrix, vectors of equal length, or a file."""

BLOCK_BYTES = 4 << 20  # of float64, so that a block is still in the cache when it is read again
AT_ONCE = 16  # rows of a file that are read before their pages, up to 2 MB around each, are given back
PANEL = 128  # rows of the Gram matrix that are made together; only its lower triangle is


@dataclass(frozen=True, eq=False)
class Products:
    """Inner products of the differences d_j = x_j − r from a reference r."""

    gram: Tensor
    """⟨d_i, d_j⟩, [J, J] float64."""
    along: Tensor
    """⟨d_j, r⟩, [J]."""
    square: Tensor
    """⟨r, r⟩."""

    def distances(self, near: Tensor, share: Tensor) -> Tensor:
        """‖x_j − y‖² for y = Σ a_i d_i + s r, [J]; what all have in common cancels before it is squared."""
        mixed, short = self.gram @ near, 1 - share
        close = self.gram.diagonal() - 2 * mixed + near @ mixed
        far = 2 * short * (self.along - near @ self.along) + short.square() * self.square
        return (close + far).clamp_(min=0.0)


class Geometry:
    """The updates X [J, K] of a round, seen through their inner products."""

    def __init__(self, updates: Rows) -> None:
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
        """What all the rest is made of; the one expensive pass."""
        clients = len(self)
        whole = isinstance(self.updates, Tensor)  # whose norms need not be exact for this
        lengths = torch.linalg.vector_norm(self.updates, dim=1) if whole else self.norms
        reference = int(lengths.argsort(stable=True)[(clients - 1) // 2])
        gram = torch.zeros(clients, clients, dtype=torch.float64)
        along, square = torch.zeros(clients, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for _, block in blocks(self.updates):
            centre = block[reference].clone()
            block -= centre
            for start in range(0, clients, PANEL):
                stop = start + PANEL
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
            raise ValueError(f"a vector of {tuple(vector.shape)} beside updates of {(len(self), self.size)}")
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

    def blended(self, mixing: Tensor) -> "Geometry":
        """The geometry of M X for a matrix M [J, J] whose rows sum to 1; the updates are not read again."""
        return _Blended(self, mixing)


class _Blended(Geometry):
    """Mixtures of the updates of another geometry."""

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


def blocks(updates: Rows) -> Iterator[tuple[slice, Tensor]]:
    """The updates in float64, some coordinates after the other; each block may be written on."""
    size = int(updates[0].shape[0])
    width = block_width(len(updates))
    wide = torch.empty(len(updates), min(width, size), dtype=torch.float64)
    for start in range(0, size, width):
        columns = slice(start, min(start + width, size))
        block = wide[:, : columns.stop - start]
        if isinstance(updates, Tensor | np.memmap):
            block.copy_(in_memory(updates[:, columns]))
        else:
            for row, update in zip(block, updates, strict=True):
                row.copy_(update[columns])
        yield columns, block


def block_width(rows: int) -> int:
    """The coordinates of a block."""
    return max(256, BLOCK_BYTES // (8 * max(rows, 1)))


def in_memory(part: Rows | NDArray[Any]) -> Tensor:
    """A part of the updates as a matrix in memory."""
    if isinstance(part, Tensor):
        return part
    if not isinstance(part, np.ndarray):
        return torch.stack(list(part))
    copied = np.empty(part.shape, part.dtype)
    for start in range(0, len(part), AT_ONCE):
        copied[start : start + AT_ONCE] = part[start : start + AT_ONCE]
        _give_back(part)
    return torch.from_numpy(copied)


def _give_back(part: NDArray[Any]) -> None:
    """Let go of the pages of a file that were just read; changes that are in no file (mode "c") must stay."""
    pages = getattr(part, "_mmap", None)
    if pages is not None and getattr(part, "mode", None) != "c" and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
