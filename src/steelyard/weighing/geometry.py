"""The geometry of a round: inner products of its updates.

Weighing rules need only the Gram matrix of the updates, J×J, and sometimes the inner products with one more
vector. Both are accumulated in float64 over blocks of coordinates. So a rule iterates on J×J numbers, the
updates are read once (`gram_pass`), and they can be a matrix, a list of vectors or a file larger than memory.

Inner products are those of the differences from a *reference* put together from parts of the updates, each
of them the one of median norm there. What all updates have in common then cancels before anything is
multiplied, and an update of extreme size affects only its own products.
"""

from functools import cached_property

import torch
from torch import Tensor

from steelyard.threads import in_parts
from steelyard.weighing.gram import GramPass, Products, gram_pass, norms_of, parts_of
from steelyard.weighing.reading import Updates, blocks, in_memory, size_of


class Geometry:
    """Norms, distances and inner products of the updates X [J, K] of a round."""

    def __init__(self, updates: Updates, paired: bool = False) -> None:
        """`paired`: products of all pairs will be needed, so norms come from the same read of the updates."""
        self.updates, self.paired = updates, paired

    def __len__(self) -> int:
        return len(self.updates)

    @property
    def size(self) -> int:
        """K, the number of coordinates."""
        return size_of(self.updates)

    @cached_property
    def norms(self) -> Tensor:
        """‖x_j‖, [J] float64."""
        return self._pass.norms if self.paired or "_pass" in vars(self) else norms_of(self.updates)

    @property
    def products(self) -> Products:
        """The inner products that all other quantities come from. The one expensive pass over the updates."""
        return self._pass.products

    @cached_property
    def _pass(self) -> GramPass:
        return gram_pass(self.updates)

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

        def products(part: slice) -> Tensor:
            total = torch.zeros(len(self), dtype=torch.float64)
            for columns, block in blocks(self.updates, part):
                total += block @ vector[columns].double()
            return total

        return torch.stack(in_parts(products, parts_of(self.updates))).sum(dim=0)

    def mix(self, weights: Tensor) -> Tensor:
        """Σ a_j x_j, [K], in the dtype of the updates."""
        if isinstance(self.updates, Tensor):
            return weights.to(self.updates.dtype) @ self.updates
        mixed = torch.empty(self.size, dtype=in_memory(self.updates[0][:1]).dtype)

        def fill(part: slice) -> None:
            for columns, block in blocks(self.updates, part):
                mixed[columns] = weights @ block

        in_parts(fill, parts_of(self.updates))
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
