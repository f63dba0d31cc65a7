"""The idx format of MNIST and of data sets modelled on it."""

import math

import numpy as np
import torch
from torch import Tensor

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.data.store import Source, load
from steelyard.errors import InputError

UNSIGNED_BYTE = 0x08


def parse(content: bytes) -> Tensor:
    """The array in an idx file: bytes 0, 0, type, rank; 4 big-endian bytes per dimension; the values."""
    if len(content) < 4 or content[:3] != bytes([0, 0, UNSIGNED_BYTE]):
        raise InputError("not an idx file of unsigned bytes.")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    if len(content) != start + math.prod(shape):
        raise InputError(
            f"an idx file of shape {shape} has {len(content)} bytes, not {start + math.prod(shape)}."
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def idx_dataset(source: Source, class_names: tuple[str, ...], mean: float, std: float) -> Dataset:
    """A data set from a source with the four files of MNIST."""
    files = load(source)

    def part(prefix: str) -> Examples:
        images = parse(files[f"{prefix}-images-idx3-ubyte"]).unsqueeze(1)
        labels = parse(files[f"{prefix}-labels-idx1-ubyte"]).long()
        return Examples(images, labels, torch.arange(len(labels)), (mean,), (std,))

    return Dataset(source.name, part("train"), part("t10k"), class_names)
