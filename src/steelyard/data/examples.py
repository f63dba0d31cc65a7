"""Examples: rows of inputs and targets, as every other part sees data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset, default_collate

from steelyard.errors import InputError


@dataclass(frozen=True, eq=False)
class Examples:
    """Some rows of a table of inputs and targets; the table is shared, only the rows are one's own.

    Images are kept as bytes and become floats, scaled by `mean` and `std` for each channel, when a batch
    needs them: a quarter of the memory for well under 1 % of the time of training a small CNN
    (`benchmarks/README.md`).
    """

    inputs: Tensor
    targets: Tensor
    rows: Tensor
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        """The targets of these rows."""
        return self.targets[self.rows]

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.inputs.shape[1:])

    def take(self, positions: Tensor) -> "Examples":
        """A part of these rows, on the same table."""
        return replace(self, rows=self.rows[positions])

    def batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs, ready for a model, and the targets at `positions` of these rows."""
        rows = self.rows[positions]
        inputs = self.inputs[rows]
        if inputs.dtype == torch.uint8:
            mean, scale = self._scaling
            inputs = inputs.float().sub_(mean).mul_(scale)
        return inputs, self.targets[rows]

    @cached_property
    def _scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and inverse standard deviation of the bytes, shaped to fit a batch."""
        shape = (-1,) + (1,) * (self.inputs.dim() - 2)
        return torch.tensor(self.mean).mul(255).view(shape), torch.tensor(self.std).mul(
            255
        ).reciprocal().view(shape)


class DatasetExamples:
    """A map-style torch `Dataset` (with its own transforms), read item by item whenever a batch needs it."""

    def __init__(self, dataset: TorchDataset[Any], rows: Tensor) -> None:
        self.dataset, self.rows = dataset, rows
        self.input_shape = tuple(default_collate([dataset[0][0]]).shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        return torch.as_tensor([int(self.dataset[int(row)][1]) for row in self.rows])

    def take(self, positions: Tensor) -> "DatasetExamples":
        return DatasetExamples(self.dataset, self.rows[positions])

    def batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = default_collate([self.dataset[int(row)] for row in self.rows[positions]])
        return inputs, targets


AnyExamples = Examples | DatasetExamples


def examples(data: Any, targets: Any = None, *, name: str = "data") -> AnyExamples:
    """Make examples of what a user has: (inputs, targets) arrays or tensors, or a torch `Dataset`."""
    if isinstance(data, Examples | DatasetExamples):
        return data
    if isinstance(data, TensorDataset):
        data = data.tensors
    if targets is None and isinstance(data, Sequence) and len(data) == 2:
        data, targets = data
    if targets is not None:
        return _from_arrays(data, targets, name)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise InputError(f"{name}: the data set is empty.")
        return DatasetExamples(data, torch.arange(len(data)))
    raise InputError(
        f"{name}: give (inputs, targets) or a map-style torch Dataset, not {type(data).__name__}."
    )


def _from_arrays(data: Any, targets: Any, name: str) -> Examples:
    inputs, labels = torch.as_tensor(data), torch.as_tensor(targets)
    if len(inputs) != len(labels):
        raise InputError(f"{name}: {len(inputs)} inputs but {len(labels)} targets.")
    if inputs.dtype == torch.float64:
        inputs = inputs.float()
    if not labels.dtype.is_floating_point:
        labels = labels.long()
    return Examples(inputs, labels, torch.arange(len(labels)))
