"""Examples: inputs and targets in the form that training and evaluation read them."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset, default_collate

from steelyard.errors import InputError
from steelyard.seeds import seeded


@dataclass(frozen=True, eq=False)
class Examples:
    """Some rows of a table of inputs and targets. Clients share the table; each has its own `rows`.

    Images are kept as bytes. A batch turns them into floats, scaled by `mean` and `std` of each channel: a
    quarter of the memory for about 2 % of the time of a small CNN (`benchmarks/README.md`). Arrays
    of float64 come as float32, unless the model is of float64 (`to`).
    """

    inputs: Tensor
    targets: Tensor
    rows: Tensor
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    double: bool | None = None
    """True: fractional inputs and targets come as float64. False: float64 comes as float32."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        """The targets of these rows."""
        return _cast(self.targets[self.rows], self.double)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.inputs.shape[1:])

    def take(self, positions: Tensor) -> "Examples":
        """The examples at `positions` of these rows, on the same table."""
        return replace(self, rows=self.rows[positions])

    def batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Model inputs and targets at `positions` of these rows."""
        return self.read(self.rows.index_select(0, positions))

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Model inputs and targets of any rows of the table."""
        inputs = self.inputs.index_select(0, rows)  # ten times as fast as inputs[rows] on bytes
        return self._scaled(inputs), _cast(self.targets.index_select(0, rows), self.double)

    def span(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The batch of positions start to stop - 1; a view if these rows are contiguous in the table."""
        if not self._contiguous:
            return self.batch(torch.arange(start, stop))
        first = int(self.rows[0])
        rows = slice(first + start, first + stop)
        return self._scaled(self.inputs[rows]), _cast(self.targets[rows], self.double)

    def as_floats(self) -> "Examples":
        """A copy of these examples whose table holds model inputs."""
        return Examples(*self.span(0, len(self)), torch.arange(len(self)), double=self.double)

    def to(self, dtype: torch.dtype) -> "Examples":
        """The same examples for a model of this floating-point type.

        A table that these rows fill is converted now, so that batches need not be. Rows of a larger table,
        which other clients may share, are converted batch by batch.
        """
        double = dtype == torch.float64
        if len(self.rows) < len(self.targets):
            return self if self.double == double else replace(self, double=double)
        inputs, targets = _cast(self.inputs, double), _cast(self.targets, double)
        if self.double == double and inputs is self.inputs and targets is self.targets:
            return self
        return replace(self, inputs=inputs, targets=targets, double=double)

    def _scaled(self, inputs: Tensor) -> Tensor:
        if inputs.dtype != torch.uint8:
            return _cast(inputs, self.double)
        mean, scale = self._scaling
        return (inputs.double() if self.double else inputs.float()).sub_(mean).mul_(scale)

    @cached_property
    def _contiguous(self) -> bool:
        return len(self) > 0 and torch.equal(self.rows, torch.arange(len(self)) + self.rows[0])

    @cached_property
    def _scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and inverse standard deviation of the bytes, shaped to broadcast over a batch."""
        shape = (-1,) + (1,) * (self.inputs.dim() - 2)
        mean, std = torch.tensor(self.mean).mul(255), torch.tensor(self.std).mul(255)
        return mean.view(shape), std.reciprocal().view(shape)


class DatasetExamples:
    """Some rows of a map-style torch `Dataset`; items are read, and transformed, when a batch needs them."""

    def __init__(self, dataset: TorchDataset[Any], rows: Tensor, double: bool | None = None) -> None:
        self.dataset, self.rows, self.double = dataset, rows, double
        self.input_shape = tuple(default_collate([dataset[0][0]]).shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> Tensor:
        with seeded(0, "labels"):  # a random transform must not change the state of the global generator
            targets: Tensor = default_collate([self.dataset[int(row)][1] for row in self.rows])
        return _cast(targets, self.double) if targets.is_floating_point() else targets.long()

    def take(self, positions: Tensor) -> "DatasetExamples":
        return self._with(rows=self.rows[positions])

    def to(self, dtype: torch.dtype) -> "DatasetExamples":
        """The same examples for a model of this floating-point type."""
        double = dtype == torch.float64
        return self if self.double == double else self._with(double=double)

    def span(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self.batch(torch.arange(start, stop))

    def batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = default_collate([self.dataset[int(row)] for row in self.rows[positions]])
        return _cast(inputs, self.double), _cast(targets, self.double)

    def _with(self, **changes: Any) -> "DatasetExamples":
        """A copy that does not read the data set anew."""
        changed = copy.copy(self)
        vars(changed).pop("labels", None)
        vars(changed).update(changes)
        return changed


AnyExamples = Examples | DatasetExamples


def share_a_table(data: AnyExamples, other: AnyExamples | None) -> bool:
    """Whether both are rows of the same table with the same scaling."""
    if not isinstance(data, Examples) or not isinstance(other, Examples):
        return False
    same = data.inputs is other.inputs and data.targets is other.targets
    return same and (data.mean, data.std, data.double) == (other.mean, other.std, other.double)


def examples(data: Any, targets: Any = None, *, name: str = "data") -> AnyExamples:
    """Examples from (inputs, targets) arrays or tensors, or from a map-style torch `Dataset`."""
    if isinstance(data, Examples | DatasetExamples):
        return data
    if isinstance(data, TensorDataset):
        data = data.tensors
    if targets is not None:
        return _from_arrays(data, targets, name)
    if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[0], tuple):
        return _from_arrays(data[0], data[1], name)
    map_style = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if isinstance(data, tuple | Tensor | np.ndarray | str | Mapping) or not map_style:
        kind = f"{len(data)} tensors" if isinstance(data, tuple) else type(data).__name__
        raise InputError(f"{name}: give (inputs, targets) or a map-style torch Dataset, not {kind}.")
    return _from_dataset(data, name)


def _from_arrays(data: Any, targets: Any, name: str) -> Examples:
    try:
        inputs, labels = torch.as_tensor(data), torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: inputs and targets must be arrays of numbers: {error}.") from None
    if inputs.dim() < 1 or labels.dim() < 1:
        raise InputError(f"{name}: inputs and targets must have a row for each example.")
    if len(inputs) != len(labels):
        raise InputError(f"{name}: {len(inputs)} inputs but {len(labels)} targets.")
    if not labels.dtype.is_floating_point:
        labels = labels.long()
    elif labels.dtype != torch.float64:
        labels = labels.float()
    return Examples(inputs, labels, torch.arange(len(labels)), double=False)


def _from_dataset(data: Any, name: str) -> DatasetExamples:
    if len(data) == 0:
        raise InputError(f"{name}: the data set is empty.")
    try:
        with seeded(0, "look"):
            _input, _target = data[0]
            return DatasetExamples(data, torch.arange(len(data)))
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{name}: items must be (input, target) with tensors or numbers: {error}.") from None
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"{name}: the first item cannot be read: {kind}: {error}.") from error


def _cast(values: Tensor, double: bool | None) -> Tensor:
    """Fractional values as float64, or float64 as float32; others, and with None all, as they are."""
    if double:
        return values.double() if values.is_floating_point() else values
    return values.float() if double is False and values.dtype == torch.float64 else values
