"""Sort the values of each coordinate, in blocks of coordinates on several threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
Keep = Callable[[Array], Array]

BLOCK_COORDINATES = 2048  # coordinates sorted together: two such blocks fit in a core's cache


def mean_of_ordered(rows: Tensor, weights: Tensor, keep: Keep) -> Tensor:
    """A weighted mean of each coordinate's sorted values, [K].

    `keep` maps the cumulative weights at the borders between the sorted values, [..., J + 1] from 0 to 1, to
    the weight that each value keeps, [..., J].
    """
    values, shares = rows.detach().numpy(), (weights / weights.sum()).double().numpy()
    result = np.empty(values.shape[1], dtype=values.dtype)
    same = keep(_borders(shares)) if np.ptp(shares) < 1e-12 else None  # equal weights: same for all

    def work(start: int) -> None:
        block = np.ascontiguousarray(values[:, start : start + BLOCK_COORDINATES].T)
        if same is not None:
            block.sort(axis=1)
            result[start : start + BLOCK_COORDINATES] = _mean(block, same)
        else:
            order = block.argsort(axis=1, kind="stable")
            kept = keep(_borders(shares[order]))
            ordered = np.take_along_axis(block, order, axis=1)
            result[start : start + BLOCK_COORDINATES] = (ordered * kept).sum(axis=1) / kept.sum(axis=1)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # numpy sorts without the interpreter's lock
        list(pool.map(work, range(0, values.shape[1], BLOCK_COORDINATES)))
    return torch.from_numpy(result)


def _mean(ordered: Array, kept: Array) -> Array:
    """The mean of each row [..., J] with the weights `kept` [J], most of which may be 0."""
    first, last = np.flatnonzero(kept)[[0, -1]]
    part = slice(first, last + 1)
    shares = (kept[part] / kept[part].sum()).astype(ordered.dtype)
    # einsum, not @: the threads of BLAS would compete with the pool's.
    mean: Array = np.einsum("kj,j->k", ordered[:, part], shares)
    return mean


def _borders(shares: Array) -> Array:
    """[..., J] -> [..., J + 1]: cumulative weights that start at 0 and end at 1."""
    ends = np.cumsum(shares, axis=-1)
    ends[..., -1] = 1.0
    return np.concatenate([np.zeros_like(ends[..., :1]), ends], axis=-1)
