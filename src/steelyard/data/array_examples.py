"""Examples in arrays: one table of inputs, or several in a tuple or dict, and one of targets."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from steelyard.data.batches import Batch, Inputs, as_input, cast, leaves, map_tensors, whole_as_int64
from steelyard.errors import InputError

BLOCK_BYTES = 16 << 20  # of a table that are looked at together
CONVERTED_BYTES = 256 << 20  # of a table that is converted as a whole; a larger tensor may be in a file


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
    mean: tuple[float, ...] | None = (0.0,)
    """Of the pixels of each channel, from 0 to 1. None: bytes become floats from 0 to 255."""
    std: tuple[float, ...] = (1.0,)
    double: bool | None = None
    """True: fractional inputs and targets come as float64. False: float64 comes as float32."""
    on_disk: bool = False
    """Whether the table is in a file (`np.memmap`): then it is converted batch by batch, never as a whole."""
    columns: tuple[str, ...] | None = None
    """The names of the columns of the inputs, if they come from a data frame."""

    def __len__(self) -> int:
        return self.rows.shape[0]  # a third of the time of len()

    @property
    def labels(self) -> Tensor:
        """The targets of these rows."""
        return self._cast(self.targets[self.rows])

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
        targets = cast(self.targets.index_select(0, rows), self.double)
        return self._scaled(inputs), whole_as_int64(targets) if self.on_disk else targets

    def span(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The batch of positions start to stop - 1; a view if these rows are contiguous in the table."""
        if self.on_disk or not self._contiguous:  # a model may write into its inputs, but not into a file
            return self.batch(torch.arange(start, stop))
        first = int(self.rows[0])
        rows = slice(first + start, first + stop)
        return self._scaled(self.inputs[rows]), self._cast(self.targets[rows])

    def as_floats(self) -> "Examples":
        """A copy of these examples whose table holds model inputs."""
        inputs, targets = self.span(0, len(self))
        rows = torch.arange(len(self))
        return Examples(inputs, targets, rows, double=self.double, columns=self.columns)

    def to(self, dtype: torch.dtype) -> "Examples":
        """The same examples for a model of this floating-point type.

        A table that these rows fill is converted now, so that batches need not be. Rows of a larger table,
        which other clients may share, tables in a file and very large tables are converted batch by batch.
        """
        double = dtype == torch.float64
        is_large = self.inputs.nbytes + self.targets.nbytes > CONVERTED_BYTES
        if len(self.rows) < len(self.targets) or self.on_disk or is_large:
            return self if self.double == double else replace(self, double=double)
        inputs, targets = cast(self.inputs, double), cast(self.targets, double)
        if self.double == double and inputs is self.inputs and targets is self.targets:
            return self
        return replace(self, inputs=inputs, targets=targets, double=double)

    def _cast(self, targets: Tensor) -> Tensor:
        values = cast(targets, self.double)
        return whole_as_int64(values) if self.on_disk else values

    def _scaled(self, inputs: Tensor) -> Tensor:
        if inputs.dtype != torch.uint8:
            return cast(inputs, self.double)
        floats = inputs.double() if self.double else inputs.float()
        if self.mean is None:
            return floats
        mean, scale = self._scaling
        return floats.sub_(mean).mul_(scale)

    @cached_property
    def _contiguous(self) -> bool:
        return _are_contiguous(self.rows)

    @cached_property
    def _scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and inverse standard deviation of the bytes, shaped to broadcast over a batch."""
        shape = (-1,) + (1,) * (self.inputs.dim() - 2)
        mean, std = torch.tensor(self.mean).mul(255), torch.tensor(self.std).mul(255)
        device = self.inputs.device
        return mean.view(shape).to(device), std.reciprocal().view(shape).to(device)


@dataclass(frozen=True, eq=False)
class ArrayExamples:
    """Some rows of tables of inputs, in a tuple or a dict, and of targets, if there are any.

    Bytes become floats from 0 to 255. Everything is converted batch by batch.
    """

    inputs: Inputs
    targets: Tensor | None
    rows: Tensor
    double: bool | None = None
    """True: fractional inputs and targets come as float64. False: float64 comes as float32."""
    on_disk: bool = False
    """Whether a table is in a file (`np.memmap`)."""

    columns: None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        """The targets of these rows."""
        if self.targets is None:
            raise InputError("these data have no targets; give them, or an objective that needs none.")
        return self._cast(self.targets[self.rows])

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one input; None if there are several."""
        return tuple(self.inputs.shape[1:]) if isinstance(self.inputs, Tensor) else None

    def take(self, positions: Tensor) -> "ArrayExamples":
        """The examples at `positions` of these rows, on the same tables."""
        return replace(self, rows=self.rows[positions])

    def batch(self, positions: Tensor) -> Batch:
        """Model inputs and targets at `positions` of these rows."""
        return self.read(self.rows.index_select(0, positions))

    def read(self, rows: Tensor) -> Batch:
        """Model inputs and targets of any rows of the tables."""
        inputs = map_tensors(self.inputs, lambda table: as_input(table.index_select(0, rows), self.double))
        targets = self.targets
        return inputs, None if targets is None else self._cast(targets.index_select(0, rows))

    def span(self, start: int, stop: int) -> Batch:
        """The batch of positions start to stop - 1; views if these rows are contiguous in the tables."""
        if self.on_disk or not self._contiguous:  # a model may write into its inputs, but not into a file
            return self.batch(torch.arange(start, stop))
        first = int(self.rows[0])
        rows = slice(first + start, first + stop)
        inputs = map_tensors(self.inputs, lambda table: as_input(table[rows], self.double))
        return inputs, None if self.targets is None else self._cast(self.targets[rows])

    def to(self, dtype: torch.dtype) -> "ArrayExamples":
        """The same examples for a model of this floating-point type."""
        double = dtype == torch.float64
        return self if self.double == double else replace(self, double=double)

    def _cast(self, targets: Tensor) -> Tensor:
        return whole_as_int64(cast(targets, self.double))

    @cached_property
    def _contiguous(self) -> bool:
        return _are_contiguous(self.rows)


def _are_contiguous(rows: Tensor) -> bool:
    return len(rows) > 0 and torch.equal(rows, torch.arange(len(rows)) + rows[0])


def float_tables(data: Examples | ArrayExamples) -> list[Tensor]:
    """The tables of inputs and targets that hold fractional numbers."""
    tables = [table for _, table in leaves((data.inputs, data.targets)) if isinstance(table, Tensor)]
    return [table for table in tables if table.is_floating_point()]


def is_finite(table: Tensor, double: bool | None = None) -> bool:
    """Whether a table surely has only finite numbers, as a model of its type sees them.

    Sums are a hundred times as fast as looking at each number; they may be too large where no number is.
    """
    if table.dtype != torch.float64 or double:
        return bool(table.sum().isfinite())
    low, high = table.aminmax() if table.numel() else (torch.zeros(()), torch.zeros(()))
    return bool(low.float().isfinite() & high.float().isfinite())  # numbers that float32 does not hold


def count_unusable(data: Any) -> int:
    """Examples with an input or target that is infinite or not a number, as a model of their type sees them.

    The tables are looked at in blocks of 16 MB. Data that are read by code of the user's own are not read
    for this: their number is 0.
    """
    if not isinstance(data, Examples | ArrayExamples) or not len(data):
        return 0
    if not float_tables(data):
        return 0
    tables = [table for _, table in leaves((data.inputs, data.targets)) if isinstance(table, Tensor)]
    width = sum(table[:1].numel() * table.element_size() for table in tables)
    step = max(1, BLOCK_BYTES // max(width, 1))
    return sum(
        _count_not_finite(data.span(start, min(start + step, len(data))))
        for start in range(0, len(data), step)
    )


def _count_not_finite(batch: Batch) -> int:
    """How many examples of a batch have a value that is infinite or not a number."""
    found: Tensor | None = None
    for _, values in leaves(batch):
        if isinstance(values, Tensor) and values.is_floating_point() and not bool(values.isfinite().all()):
            rows = ~values.isfinite().flatten(1).all(1) if values.dim() > 1 else ~values.isfinite()
            found = rows if found is None else found | rows
    return 0 if found is None else int(found.sum())
