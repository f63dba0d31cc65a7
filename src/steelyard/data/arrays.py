"""From arrays of the user's own to examples: lengths, types, bytes, and arrays in files."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steelyard.data.array_examples import ArrayExamples, Examples
from steelyard.data.batches import has_bytes, in_sentence, leaves, whole_as_int64
from steelyard.data.data_frames import is_frame, is_series, matrix_of, targets_of
from steelyard.errors import InputError, warn_caller

BYTES = (
    "the inputs are bytes and reach the model as floats from 0 to 255; for pixels, divide them by 255, or "
    "give mean and std: sy.examples(inputs, targets, mean=0, std=1)."
)
BYTES_OF_ITEMS = (
    "the inputs are bytes and reach the model as floats from 0 to 255; for pixels, divide them by 255 in the "
    "data set or the collate_fn."
)
Numbers = float | Sequence[float]


def from_arrays(
    inputs: Any, targets: Any, name: str, mean: Numbers | None = None, std: Numbers | None = None
) -> Examples | ArrayExamples:
    """Examples from arrays that have a row for each example: one array, or a tuple or dict of them."""
    on_disk = _any_on_disk(inputs) or is_on_disk(targets)
    tables = _tables(inputs, name)
    labels = None if targets is None else as_targets(targets, name)
    size = _check_lengths(tables, labels, name)
    are_bytes = has_bytes(tables)
    scaled = mean is not None or std is not None
    if scaled and not (isinstance(tables, Tensor) and are_bytes and labels is not None):
        raise InputError(
            f"{name}: mean and std scale one array of bytes that has targets; scale other inputs yourself."
        )
    if are_bytes and not scaled:
        warn_caller(BYTES)
    rows = torch.arange(size)
    if not isinstance(tables, Tensor) or labels is None:
        return ArrayExamples(tables, labels, rows, double=False, on_disk=on_disk)
    if not scaled:
        return Examples(tables, labels, rows, None, double=False, on_disk=on_disk)
    means, stds = _scale(mean, std, tables, name)
    return Examples(tables, labels, rows, means, stds, double=False, on_disk=on_disk)


def as_tensor(values: Any, name: str) -> Tensor:
    """A tensor of an array, a list, a series or a frame, in the same memory where that is possible."""
    if is_series(values) or is_frame(values):
        return matrix_of(values, name)
    try:
        if isinstance(values, np.ndarray) and not values.flags.writeable:
            with warnings.catch_warnings():  # nothing writes into the tables of examples
                warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
                return torch.as_tensor(values)
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: inputs and targets must be arrays of numbers: {in_sentence(error)}."
        ) from None


def is_on_disk(values: Any) -> bool:
    """Whether an array, or what it is a view of, is an `np.memmap`."""
    while isinstance(values, np.ndarray):
        if isinstance(values, np.memmap):
            return True
        values = values.base
    return False


def _any_on_disk(inputs: Any) -> bool:
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else ()
    return is_on_disk(inputs) or any(map(_any_on_disk, parts))


def _tables(inputs: Any, name: str) -> Any:
    """The inputs as tensors, in the structure that they have."""
    if isinstance(inputs, Mapping):
        return {key: _tables(part, f"{name}: {key!r}") for key, part in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_tables(part, f"{name}: input {place}") for place, part in enumerate(inputs, 1))
    return as_tensor(inputs, name)


def as_targets(targets: Any, name: str) -> Tensor:
    """Class numbers as int64, other numbers as float32 or float64, and several labels at once as bool.

    Of targets in a file, one for each example, this may be a copy in memory, of 8 bytes for each: they are
    looked at before the first round anyway. Several for each example stay in the file.
    """
    if is_series(targets) or is_frame(targets):
        return targets_of(targets, name)
    labels = as_tensor(targets, name)
    if labels.dim() > 1 and is_on_disk(targets):
        return labels  # converted batch by batch
    if labels.is_floating_point():
        return labels if labels.dtype == torch.float64 else labels.float()
    return labels.long() if labels.dim() < 2 else whole_as_int64(labels)


def _check_lengths(tables: Any, labels: Tensor | None, name: str) -> int:
    """The number of examples; arrays of different lengths are refused by name."""
    parts = [(place.removeprefix("inputs"), table) for place, table in leaves(tables)]
    if not parts:
        raise InputError(f"{name}: there are no inputs; give arrays that have a row for each example.")
    if any(table.dim() < 1 for _, table in parts) or (labels is not None and labels.dim() < 1):
        raise InputError(f"{name}: inputs and targets must have a row for each example.")
    size = len(parts[0][1]) if labels is None else len(labels)
    for place, table in parts:
        if len(table) != size:
            what = f"{size} targets" if labels is not None else f"{size} in {parts[0][0]}"
            raise InputError(f"{name}: {len(table)} inputs{place and ' in ' + place} but {what}.")
    return size


def _scale(
    mean: Numbers | None, std: Numbers | None, inputs: Tensor, name: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, or of all of them."""
    means, stds = (_numbers(given, usual) for given, usual in ((mean, 0.0), (std, 1.0)))
    channels = inputs.shape[1] if inputs.dim() > 1 else 1
    for what, values in (("mean", means), ("std", stds)):
        if len(values) not in (1, channels):
            raise InputError(f"{name}: {what} has {len(values)} values, but the inputs {channels} channels.")
    if not all(value > 0 for value in stds):
        raise InputError(f"{name}: std must be greater than 0, not {min(stds)}.")
    return means, stds


def _numbers(given: Any, usual: float) -> tuple[float, ...]:
    if given is None:
        return (usual,)
    return tuple(torch.as_tensor(given, dtype=torch.float64).flatten().tolist())
