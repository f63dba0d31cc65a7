"""Reading updates in blocks of coordinates: a matrix, vectors, or a file larger than memory."""

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Updates = Tensor | Sequence[Tensor | np.memmap] | np.memmap
"""J updates of K coordinates: a matrix, vectors of equal length, or a file or some of its rows."""

BLOCK_BYTES = 2 << 20  # size of a float64 block: small enough to stay in the cache between two reads
PANEL_BYTES = 16 << 20  # of a file that are in memory at a time: long runs of a row are read faster
MAPPED_AROUND = 2 << 20  # Linux may map a large page of so many bytes where a part of it is read
ROWS_PER_READ = 16  # rows of a file to read before their pages are released


def block_width(rows: int) -> int:
    """The number of coordinates per block."""
    return max(256, BLOCK_BYTES // (8 * max(rows, 1)))


def size_of(updates: Updates) -> int:
    """K, the number of coordinates."""
    return int(updates[0].shape[0])


def blocks(
    updates: Updates, columns: slice | None = None, more_rows: int = 0
) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of coordinates of the updates in float64. A block may be modified until the next one is read.

    `columns` is the range to read, by default all; `more_rows` are added below, for the caller to fill.
    """
    count, columns = len(updates), columns or slice(0, size_of(updates))
    width = block_width(count)
    narrowest = min(width, columns.stop - columns.start)
    buffer = torch.empty(count + more_rows, narrowest, dtype=torch.float64)
    for panel, part in _panels(updates, columns):
        for start in range(panel.start, panel.stop, width):
            stop = min(start + width, panel.stop)
            block = buffer[:, : stop - start]
            inside = slice(start - panel.start, stop - panel.start)
            if isinstance(part, Tensor):
                block[:count].copy_(part[:, inside])
            else:
                for row, update in zip(block, part, strict=False):
                    row.copy_(update[inside])
            yield slice(start, stop), block


def _panels(updates: Updates, columns: slice) -> Iterator[tuple[slice, Tensor | Sequence[Tensor]]]:
    """The columns of the updates in memory; those of a file in several panels of whole blocks."""
    if isinstance(updates, Tensor):
        yield columns, updates[:, columns]
        return
    if not isinstance(updates, np.memmap) and all(isinstance(row, Tensor) for row in updates):
        yield columns, [row[columns] for row in updates if isinstance(row, Tensor)]
        return
    count, block = len(updates), block_width(len(updates))
    width = block * max(1, PANEL_BYTES // (updates[0].itemsize * count * block))
    buffer: Tensor | None = None
    for start in range(columns.start, columns.stop, width):
        panel = slice(start, min(start + width, columns.stop))
        if not isinstance(updates, np.memmap):
            yield panel, [in_memory(row[panel]) for row in updates]
            continue
        if buffer is None:
            buffer = in_memory(updates[:, panel])
        else:
            _read(updates[:, panel], buffer.numpy()[:, : panel.stop - start])
        yield panel, buffer[:, : panel.stop - start]


def in_memory(part: Updates | NDArray[Any]) -> Tensor:
    """A part of the updates in memory: a matrix, or one vector."""
    if isinstance(part, Tensor):
        return part
    if not isinstance(part, np.ndarray):
        return torch.stack([in_memory(row) for row in part])
    copied = np.empty(part.shape, part.dtype)
    if part.ndim == 1:
        copied[...] = part
        _release_pages(part)
    else:
        _read(part, copied)
    return torch.from_numpy(copied)


def _read(rows: NDArray[Any], copied: NDArray[Any]) -> None:
    """Copy rows of a file, a few at a time, and release their pages."""
    for start in range(0, len(rows), ROWS_PER_READ):
        some = rows[start : start + ROWS_PER_READ]
        copied[start : start + ROWS_PER_READ] = some
        for row in some:
            _release_pages(row)


def _release_pages(row: NDArray[Any]) -> None:
    """Release the memory of a mapped file's pages. Not in mode "c", where it would lose unsaved changes."""
    pages = getattr(row, "_mmap", None)
    if pages is None or getattr(row, "mode", None) == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    ends = row[:1].ctypes.data, row[-1:].ctypes.data + row.itemsize
    first = np.frombuffer(pages, np.uint8).ctypes.data
    start = max(0, (min(ends) - first) // mmap.PAGESIZE * mmap.PAGESIZE - MAPPED_AROUND)
    stop = min(len(pages), max(ends) - first + MAPPED_AROUND)
    pages.madvise(mmap.MADV_DONTNEED, start, stop - start)
