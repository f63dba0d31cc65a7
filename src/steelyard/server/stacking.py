"""The vectors of several clients as the rows of matrices."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steelyard.types import Reply, Stack


def stack_up(replies: Sequence[Reply]) -> Stack:
    """The messages of replies as rows of matrices."""
    variances = [reply.message.variance for reply in replies if reply.message.variance is not None]
    return Stack(pile([reply.message.mean for reply in replies]), pile(variances) if variances else None)


def pile(rows: Sequence[Tensor]) -> Tensor:
    """Vectors as the rows of a matrix, without a copy if they already are rows of one."""
    matrix = matrix_view(rows)
    return torch.stack(list(rows)) if matrix is None else matrix


def matrix_view(rows: Sequence[Tensor]) -> Tensor | None:
    """Vectors as the rows of a matrix, if they lie in one piece of memory, one after the other.

    Methods are called on the class, because a tensor that a client made may have other methods of its own.
    """
    first, data_ptr, stride = rows[0], Tensor.data_ptr, Tensor.stride
    size, bytes_of_one = first.shape[0], Tensor.element_size(first)
    start, width = data_ptr(first), size * bytes_of_one
    for number, row in enumerate(rows):
        if data_ptr(row) != start + number * width or stride(row) != (1,):
            return None
    end = Tensor.storage_offset(first) * bytes_of_one + len(rows) * width
    if end > Tensor.untyped_storage(first).nbytes():
        return None
    return torch.as_strided(first, (len(rows), size), (size, 1))
