"""Rules that put the values of each coordinate in order: blocks of coordinates, sorted on several threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
Keep = Callable[[Array], Array]

WIDTH = 2048  # coordinates of a block: a core's cache holds it twice


def mean_of_ordered(rows: Tensor, weights: Tensor, keep: Keep) -> Tensor:
    """The mean of what `keep` leaves of each coordinate's values, in order, [K].

    `keep` is given the cumulative weights [..., J + 1], from 0 to 1, at the borders between the values in
    order, and returns the weight that is kept of each, [..., J].
    """
    values, shares = rows.detach().numpy(), (weights / weights.sum()).double().numpy()
    result = np.empty(values.shape[1], dtype=values.dtype)
    same = keep(_borders(shares)) if np.ptp(shares) < 1e-12 else None  # equal weights: one answer for all

    def work(start: int) -> None:
        block = np.ascontiguousarray(values[:, start : start + WIDTH].T)
        if same is not None:
            block.sort(axis=1)
            result[start : start + WIDTH] = _mean(block, same)
        else:
            order = block.argsort(axis=1, kind="stable")
            kept = keep(_borders(shares[order]))
            ordered = np.take_along_axis(block, order, axis=1)
            result[start : start + WIDTH] = (ordered * kept).sum(axis=1) / kept.sum(axis=1)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # numpy sorts without the interpreter's lock
        list(pool.map(work, range(0, values.shape[1], WIDTH)))
    return torch.from_numpy(result)


def _mean(ordered: Array, kept: Array) -> Array:
    """The mean with one set of weights, most of which may be 0."""
    first, last = np.flatnonzero(kept)[[0, -1]]
    part = slice(first, last + 1)
    shares = (kept[part] / kept[part].sum()).astype(ordered.dtype)
    mean: Array = np.einsum(
        "kj,j->k", ordered[:, part], shares
    )  # not @, whose threads get in the way of ours
    return mean


def _borders(shares: Array) -> Array:
    """[..., J] -> [..., J + 1]: cumulative weights that start at 0 and end at 1."""
    ends = np.cumsum(shares, axis=-1)
    ends[..., -1] = 1.0
    return np.concatenate([np.zeros_like(ends[..., :1]), ends], axis=-1)
