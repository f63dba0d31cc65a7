"""Examples in a map-style torch `Dataset`: items are read when a batch needs them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import default_collate

from steelyard.data.arrays import BYTES_OF_ITEMS
from steelyard.data.batches import Batch, as_inputs, cast, cast_all, has_bytes, in_sentence, leaves, split
from steelyard.errors import InputError, warn_caller
from steelyard.seeds import seeded

Collate = Callable[[list[Any]], Any]
"""From a list of items to a batch."""


class DatasetExamples:
    """Some rows of a map-style torch `Dataset`; items are read, and transformed, when a batch needs them.

    Items are pairs, longer tuples, dicts or single tensors (`batches.split`); `collate_fn` makes a batch of
    some, as in a `DataLoader`.
    """

    columns: None = None

    def __init__(
        self,
        dataset: TorchDataset[Any],
        rows: Tensor,
        double: bool | None = None,
        collate_fn: Collate | None = None,
        target: str | None = None,
        name: str = "data",
    ) -> None:
        self.dataset, self.rows, self.double = dataset, rows, double
        self.collate_fn, self.target, self.name = collate_fn, target, name
        inputs, _ = self._batch([dataset[0]])
        known = collate_fn is None and isinstance(inputs, Tensor)
        self.input_shape: tuple[int, ...] | None = tuple(inputs.shape[1:]) if known else None
        """The shape of one input; None if there are several, or if a `collate_fn` may change it."""
        if has_bytes(inputs):
            warn_caller(BYTES_OF_ITEMS)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> Tensor:
        """The targets of these rows; all items are read for them."""
        with seeded(0, "labels"):  # a random transform must not change the state of the global generator
            found = [self._batch(self._items(rows))[1] for rows in torch.split(self.rows, 256)]
        return joined_labels(found, self.double, self.name)

    def take(self, positions: Tensor) -> "DatasetExamples":
        return self._with(rows=self.rows[positions])

    def to(self, dtype: torch.dtype) -> "DatasetExamples":
        """The same examples for a model of this floating-point type."""
        double = dtype == torch.float64
        return self if self.double == double else self._with(double=double)

    def span(self, start: int, stop: int) -> Batch:
        return self.batch(torch.arange(start, stop))

    def batch(self, positions: Tensor) -> Batch:
        inputs, targets = self._batch(self._items(self.rows[positions]))
        return as_inputs(inputs, self.double), cast_all(targets, self.double)

    def _items(self, rows: Tensor) -> list[Any]:
        """The items of these rows, read at once if the data set can do that."""
        read_many = getattr(self.dataset, "__getitems__", None)  # as torch's own DataLoader does
        numbers = rows.tolist()
        return list(read_many(numbers)) if callable(read_many) else [self.dataset[row] for row in numbers]

    def _batch(self, items: list[Any]) -> Batch:
        return split(collated(items, self.collate_fn, self.name), self.target)

    def _with(self, **changes: Any) -> "DatasetExamples":
        """A copy that does not read the data set anew."""
        changed = copy.copy(self)
        vars(changed).pop("labels", None)
        vars(changed).update(changes)
        return changed


def joined_labels(parts: Sequence[Tensor | None], double: bool | None, name: str) -> Tensor:
    """The targets of several batches in one tensor."""
    found = [part for part in parts if isinstance(part, Tensor)]
    if len(found) < len(parts) or not found:
        raise InputError(f"{name}: these data have no targets; give them, or an objective that needs none.")
    try:
        return cast(torch.cat(found), double)
    except RuntimeError as error:
        raise InputError(
            f"{name}: the targets of different batches differ in shape: {in_sentence(error)}."
        ) from None


def collated(items: list[Any], collate_fn: Collate | None, name: str) -> Any:
    """A batch of items, by the user's `collate_fn` or torch's."""
    if collate_fn is not None:
        return collate_fn(items)
    try:
        return default_collate(items)
    except (RuntimeError, TypeError, KeyError):
        if len(items) > 1 and len({_shapes(item) for item in items}) > 1:
            raise InputError(
                f"{name}: items differ in shape; give a collate_fn, such as sy.examples(data, "
                "collate_fn=pad)."
            ) from None
        raise


def _shapes(item: Any) -> tuple[Any, ...]:
    """Where an item has tensors, and of which shapes."""
    return tuple((place, getattr(leaf, "shape", None)) for place, leaf in leaves(item))


def from_dataset(data: Any, collate_fn: Collate | None, target: str | None, name: str) -> DatasetExamples:
    """Examples from a data set whose first item can be read."""
    if len(data) == 0:
        raise InputError(f"{name}: the data set is empty.")
    try:
        with seeded(0, "look"):
            _check_item(data[0], collate_fn)
            return DatasetExamples(data, torch.arange(len(data)), None, collate_fn, target, name)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(name) else f"{name}: {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{name}: items must be pairs, tuples or dicts of tensors and numbers: {in_sentence(error)}."
        ) from None
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"{name}: the first item cannot be read: {kind}: {in_sentence(error)}.") from error


def _check_item(item: Any, collate_fn: Collate | None) -> None:
    """Refuse lists of numbers, of which torch's `default_collate` makes one tensor for each number."""
    if collate_fn is not None or not isinstance(item, list | tuple | Mapping):
        return
    parts = list(item.values()) if isinstance(item, Mapping) else list(item)
    if any(isinstance(part, list) and part and isinstance(part[0], int | float) for part in parts):
        raise TypeError("an item holds a list of numbers; make a tensor of it")
