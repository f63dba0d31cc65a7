"""Merge LoRA adapters by their products: the mean of B_j A_j, not the product of the means of B_j and A_j.

The merged change of a weight is M = B A + Σ c_j (B_j A_j − B A). A and B are the factors that came down,
A_j = A + a_j and B_j = B + b_j those of client j, and c_j is its weight times the factor on its update. In
terms of the updates a_j, b_j,

    M = [B, c_1 b_1, …, c_J b_J] [A + Σ c_j a_j; A_1; …; A_J],

whose best approximation of rank R is its truncated singular value decomposition: a QR decomposition of both
sides and one small SVD. No matrix of the size of the weight is made.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from steelyard.combining.products import Merged, ProductCombiner
from steelyard.layout import Pair


@dataclass(frozen=True)
class LowRank(ProductCombiner):
    """The weighted mean of the products of LoRA factors, reduced to the rank that travels by an SVD.

    Needs the sharing `adapter`. Updates are weighed, screened and clipped by their products, too. The round's
    metric `rank_error` is the relative error of the reduction; it is 0 if the `rank` of the sharing is large
    enough. What is not a factor is merged by the mean.
    """

    def merge(self, updates: Tensor, factors: Tensor, start: Tensor, pairs: tuple[Pair, ...]) -> Merged:
        change = factors.to(updates.dtype) @ updates
        lost = total = torch.zeros((), dtype=torch.float64)
        for pair in pairs:
            a, b, squares = _merged(pair, updates, factors, start)
            for entry, factor in ((pair.a, a), (pair.b, b)):
                place = slice(entry.start, entry.stop)
                change[place] = factor.reshape(-1).to(change.dtype) - start[place]
            lost, total = lost + squares[pair.rank :].sum(), total + squares.sum()
        error = (lost / total).sqrt() if bool(total > 0) else torch.zeros_like(total)
        return Merged(change, error)


def _merged(pair: Pair, updates: Tensor, factors: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A [R, n], B [m, R], and the squares of all singular values of M, the largest first."""
    a, b = (part.double() for part in pair.split(start))
    changes_a, changes_b = (part.double() for part in pair.split(updates))
    shares = factors.view(-1, 1, 1)
    changed, theirs = (shares * changes_b.mT).flatten(0, 1), (a + changes_a).flatten(0, 1)
    used = changed.any(dim=1)  # a client changes only as many rows as its own rank
    left = torch.cat([b.T, changed[used]])
    right = torch.cat([a + (shares * changes_a).sum(dim=0), theirs[used]])
    u, values, v = _svd(left, right)
    norm = row_norm(a)
    rank, missing = pair.rank, max(0, pair.rank - len(values))
    new_a = pad(norm * v[:rank], (0, 0, 0, missing))
    new_b = pad(values[:rank].unsqueeze(1) * u[:rank] / norm, (0, 0, 0, missing))
    return new_a, new_b.T, values.square()


def _svd(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U [k, m], S [k] and V [k, n] with leftᵀ right = Uᵀ diag(S) V."""
    left_q, left_r = torch.linalg.qr(left.T)
    right_q, right_r = torch.linalg.qr(right.T)
    u, values, v = torch.linalg.svd(left_r @ right_r.T, full_matrices=False)
    return (left_q @ u).T, values, v @ right_q.T


def row_norm(a: Tensor) -> Tensor:
    """The root mean square norm of the rows of A that are not 0; 1 if there is none.

    A product has many factors. The rows of A keep this norm, and B has the rest: so training goes on as fast
    as before, and a direction that is not used yet can still be learned.
    """
    norms = torch.linalg.vector_norm(a, dim=1)
    norms = norms[norms > 0]
    return norms.square().mean().sqrt() if len(norms) else torch.ones((), dtype=a.dtype)
