"""Memory for a round: the model that goes down, one row for each update, and predictions."""

import ctypes
import mmap

import torch
from torch import Tensor

from steelyard.types import Message


class UpdateBuffer:
    """A matrix with one row for each update of a round, so that updates are stacked from the start."""

    def __init__(self, like: Message, count: int, shared: bool = False) -> None:
        self.count = count
        self.matrices = like.map(lambda slot: slot.new_empty(count, *slot.shape))
        if shared:
            self.matrices.map(share)

    def __getitem__(self, row: int) -> Message:
        return self.matrices.map(lambda matrix: matrix[row])


class LocalBuffers:
    """The model that goes down and the updates that come up, in a process's own memory."""

    def __init__(self, down: Message, rows: int = 0) -> None:
        self.down, self.up = down, UpdateBuffer(down, rows)
        self.predictions = torch.empty(0, 0)  # of the common test set, [N, C]

    def write(self, message: Message) -> None:
        """Set the model that goes down."""
        self.down = message

    def predicted(self, rows: slice) -> Tensor:
        """The rows of predictions of the common test set."""
        return self.predictions[rows]

    def take(self, outputs: Tensor, rows: slice) -> bool:
        """Whether these predictions could be written into their rows."""
        place = self.predicted(rows)
        if (place.shape, place.dtype) != (outputs.shape, outputs.dtype):
            return False
        place.copy_(outputs)
        return True

    def make_private(self) -> None:
        """In a forked process: separate this memory from that of the process that was forked."""


class SharedBuffers(LocalBuffers):
    """The same in memory that child processes see."""

    def __init__(self, like: Message, rows: int, predictions: tuple[int, int] = (0, 0)) -> None:
        """`predictions` is the shape of the predictions of the common test set."""
        self.down = like.map(torch.empty_like).map(share)
        self.up = UpdateBuffer(like, rows, shared=True)
        self.predictions = share(torch.empty(predictions))
        self.written: Message | None = None

    def write(self, message: Message) -> None:
        if self.written is message:
            return
        for shared, slot in zip(self.down, message, strict=True):
            if shared is not None and slot is not None:
                shared.copy_(slot)
        self.written = message

    def make_private(self) -> None:
        for message in (self.down, self.up.matrices):
            message.map(make_private)
        make_private(self.predictions)


def share(tensor: Tensor) -> Tensor:
    """Move a tensor into memory that child processes see."""
    shared: Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return shared


MAP_FIXED = 0x10  # of Linux and macOS; the module mmap does not have it


def make_private(tensor: Tensor) -> Tensor:
    """Put zeros of this process's own in place of memory that it shares with others."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return tensor
    offset = storage.data_ptr() % mmap.PAGESIZE
    start, length = storage.data_ptr() - offset, storage.nbytes() + offset
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    arguments = (ctypes.c_void_p(start), ctypes.c_size_t(length), access, flags, -1, ctypes.c_long(0))
    if libc.mmap(*arguments) != start:
        raise OSError(ctypes.get_errno(), "cannot separate the memory of a forked process")
    return tensor
