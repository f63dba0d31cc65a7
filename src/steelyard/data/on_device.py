"""Examples whose batches come on a device such as a GPU.

Arrays are put there as a whole, bytes as bytes: their batches are selected and converted on the device.
Files, data sets that read items, and streams give batches on the CPU, which are moved one by one.
"""

import copy
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from steelyard.data.batches import Batch, cast, map_tensors
from steelyard.data.examples import AnyExamples, ArrayExamples, DatasetExamples, Examples, StreamExamples
from steelyard.devices import CPU, WITHOUT_DOUBLE

T = TypeVar("T")


class Tables:
    """What has been put on a device: clients that share a table share it there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.moved = WeakTensorKeyDictionary()
        """The table on the device, for as long as the original is used."""

    def examples(self, data: AnyExamples) -> AnyExamples:
        """The same examples, with batches on the device."""
        if isinstance(data, Examples | ArrayExamples):
            values: dict[str, Any] = {each.name: getattr(data, each.name) for each in fields(data)}
            if not data.on_disk:
                values |= {name: map_tensors(values[name], self._table) for name in ("inputs", "targets")}
            kind = ExamplesOnDevice if isinstance(data, Examples) else ArraysOnDevice
            return kind(**(values | {"device": self.device}))
        changed: Any = copy.copy(data)
        changed.__class__ = StreamOnDevice if isinstance(data, StreamExamples) else DatasetOnDevice
        changed.device = self.device
        return changed  # type: ignore[no-any-return]

    def _table(self, table: Tensor) -> Tensor:
        if table not in self.moved:
            fits = cast(table, False) if self.device.type in WITHOUT_DOUBLE else table
            self.moved[table] = fits.to(self.device)
        moved: Tensor = self.moved[table]
        return moved


def put(structure: T, device: torch.device) -> T:
    """A structure of tensors, such as a batch, on a device."""
    moved: T = map_tensors(structure, lambda tensor: tensor.to(device))
    return moved


@dataclass(frozen=True, eq=False)
class ExamplesOnDevice(Examples):
    device: torch.device = CPU

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return put(super().read(rows.to(self.inputs.device)), self.device)


@dataclass(frozen=True, eq=False)
class ArraysOnDevice(ArrayExamples):
    device: torch.device = CPU

    def read(self, rows: Tensor) -> Batch:
        return put(super().read(rows if self.on_disk else rows.to(self.device)), self.device)


class DatasetOnDevice(DatasetExamples):
    device = CPU

    def batch(self, positions: Tensor) -> Batch:
        return put(super().batch(positions), self.device)


class StreamOnDevice(StreamExamples):
    device = CPU

    def passes(self, batch_size: int) -> Iterator[Batch]:
        with closing(super().passes(batch_size)) as batches:  # type: ignore[type-var]
            for batch in batches:
                yield put(batch, self.device)
