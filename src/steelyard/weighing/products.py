"""The geometry of adapters: inner products of the changes of W, not of the factors that make them.

A client's factors A_j = A + a_j and B_j = B + b_j, where a_j, b_j are its update of the shared A, B, change a
weight by

    Δ_j = B_j A_j − B A = B a_j + b_j A_j = [B, b_j] [a_j; A_j] = L_j R_j,

which is never computed: ⟨Δ_i, Δ_j⟩ = tr((R_j R_iᵀ)(L_iᵀ L_j)) needs products of 2r × 2r. Two clients with
different factors of one product, such as B_j A_j = (−B_j)(−A_j), have the same Δ.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.layout import Pair
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.gram import GramPass, Products, gram_pass

PANEL_BYTES = 32 << 20  # of the inner products of factors that are computed at a time

Sides = tuple[Tensor, Tensor]
"""L_jᵀ [J, 2r, m] and R_j [J, 2r, n] of one layer, float64."""


class ProductGeometry(Geometry):
    """The geometry of the products Δ_j of all layers, and of the coordinates that are in no pair.

    `size` is that of the factors, the number of independent values that a client sends. There is no vector of
    a product, so rules that read updates (`Weigher.reads_updates`) cannot use this geometry.
    """

    def __init__(self, updates: Tensor, start: Tensor, pairs: tuple[Pair, ...]) -> None:
        """`updates` [J, K] are changes of the factors `start` [K]."""
        super().__init__(updates)
        self.matrix, self.start, self.pairs = updates, start, pairs

    @cached_property
    def norms(self) -> Tensor:
        squares = self._plain_pass.norms.square()
        for pair in self.pairs:
            left, right = self._sides(pair)
            squares += ((left @ left.mT) * (right @ right.mT)).sum(dim=(1, 2))
        return squares.clamp_(min=0.0).sqrt()

    @cached_property
    def products(self) -> Products:
        """Differences from a reference are those of its factors: what all updates share cancels."""
        reference = int(self.norms.argsort(stable=True)[(len(self) - 1) // 2])
        plain = self._plain_pass.products
        gram, along, square = plain.gram.clone(), plain.along.clone(), plain.square.clone()
        for pair in self.pairs:
            left, right = self._sides(pair)
            own = left[reference : reference + 1], right[reference : reference + 1]
            sides = self._sides(pair, self.matrix[reference])
            for rows, part in _panels(sides, sides):
                gram[rows] += part
            along += inner_products(sides, own).squeeze(1)
            square += inner_products(own, own).squeeze()
        return Products((gram + gram.T) / 2, along, square)

    @cached_property
    def _plain_pass(self) -> GramPass:
        """That of the coordinates that are in no pair."""
        return gram_pass(self.matrix[:, self.plain])

    @cached_property
    def plain(self) -> Tensor:
        """The coordinates that are in no pair."""
        is_plain = torch.ones(self.size, dtype=torch.bool)
        for entry in (entry for pair in self.pairs for entry in (pair.a, pair.b)):
            is_plain[entry.start : entry.stop] = False
        return is_plain.nonzero().flatten()

    def inner(self, vector: Tensor) -> Tensor:
        raise InputError(_NO_VECTOR)

    def mix(self, weights: Tensor) -> Tensor:
        raise InputError(_NO_VECTOR)

    def _sides(self, pair: Pair, origin: Tensor | None = None) -> Sides:
        """L_jᵀ and R_j of the changes from what was shared or, with the update `origin`, from its factors."""
        (a, b), (change_a, change_b) = (
            (first.double(), second.double()) for first, second in map(pair.split, (self.start, self.matrix))
        )
        if origin is not None:
            own_a, own_b = pair.split(origin)
            a, b, change_a, change_b = a + own_a, b + own_b, change_a - own_a, change_b - own_b
        left = torch.cat([b.T.expand(len(self), -1, -1), change_b.mT], dim=1)
        return left, torch.cat([change_a, a + change_a], dim=1)


_NO_VECTOR = (
    "a weighing rule asks for the vector of an update, but products of factors have none; set "
    "reads_updates = True in the rule, and combine with the mean."
)


def inner_products(ones: Sides, others: Sides) -> Tensor:
    """⟨L_i R_i, L'_j R'_j⟩, [I, J]."""
    (count, width, _), (other_count, other_width, _) = ones[0].shape, others[0].shape
    lefts, rights = (
        one.flatten(0, 1) @ other.flatten(0, 1).T for one, other in zip(ones, others, strict=True)
    )
    return (lefts * rights).view(count, width, other_count, other_width).sum(dim=(1, 3))


def _panels(ones: Sides, others: Sides) -> Iterator[tuple[slice, Tensor]]:
    """The inner products of some rows after the other."""
    (count, width, _), (other_count, other_width, _) = ones[0].shape, others[0].shape
    step = max(1, PANEL_BYTES // (8 * width * max(other_count * other_width, 1)))
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        yield rows, inner_products((ones[0][rows], ones[1][rows]), others)
