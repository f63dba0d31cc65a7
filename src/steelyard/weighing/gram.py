"""The Gram pass: norms and inner products of updates, from one read of them.

The coordinates are divided into parts, by the shape of the updates alone, and the parts into blocks that
stay in the cache. Parts are computed at the same time and added in their order, so the result has the same
bits for any number of threads.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.threads import in_parts
from steelyard.weighing.reading import Updates, block_width, blocks, size_of

PARTS = 16  # of the coordinates, at most: so many cores can work at the same time
SUM_BYTES = 1 << 28  # of the sums of all parts together, at most
LARGE = 1 << 22  # values from which it pays to compute norms on several cores
PANEL_ROWS = 64  # rows of the Gram matrix per product; only the lower triangle is computed


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


class GramPass(NamedTuple):
    """What one read of the updates gives."""

    norms: Tensor
    """‖x_j‖, [J] float64."""
    products: Products


def gram_pass(updates: Updates) -> GramPass:
    """Norms and inner products.

    In each block of coordinates, the reference is the update whose norm in that block is the median. So a
    minority of the updates, of any size, cannot choose it, and it is known without a read before this one.
    """
    count = len(updates)

    def sums(columns: slice) -> tuple[Tensor, Tensor]:
        squares = torch.zeros(count, dtype=torch.float64)
        products = torch.zeros(count + 1, count + 1, dtype=torch.float64)
        for _, block in blocks(updates, columns, more_rows=1):
            differences, reference = block[:count], block[count]
            norms = torch.linalg.vector_norm(differences, dim=1)
            squares += norms.square()
            reference.copy_(differences[norms.argsort(stable=True)[(count - 1) // 2]])
            differences -= reference
            for start in range(0, count + 1, PANEL_ROWS):
                stop = start + PANEL_ROWS
                products[start:stop, :stop].addmm_(block[start:stop], block[:stop].T)
        return squares, products

    squares, products = map(_total, zip(*in_parts(sums, parts_of(updates)), strict=True))
    gram = products[:count, :count].tril()
    both = Products(gram + gram.tril(-1).T, products[count, :count].clone(), products[count, count].clone())
    return GramPass(squares.sqrt_(), both)


def norms_of(updates: Updates) -> Tensor:
    """The norms alone, with the same bits as those of `gram_pass`."""

    def squares(columns: slice) -> Tensor:
        total = torch.zeros(len(updates), dtype=torch.float64)
        for _, block in blocks(updates, columns):
            total += torch.linalg.vector_norm(block, dim=1).square()
        return total

    workers = 1 if len(updates) * size_of(updates) < LARGE else None
    return _total(in_parts(squares, parts_of(updates), workers)).sqrt_()


def parts_of(updates: Updates) -> list[slice]:
    """Ranges of whole blocks of coordinates, which depend on the shape of the updates alone."""
    count, size = len(updates), size_of(updates)
    width = block_width(count)
    number = -(-size // width)
    parts = max(1, min(PARTS, number, SUM_BYTES // (8 * (count + 1) ** 2)))
    bounds = [min(width * (number * part // parts), size) for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _total(parts: "tuple[Tensor, ...] | list[Tensor]") -> Tensor:
    """The sum, in the order of the parts."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total
