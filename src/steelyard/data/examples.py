"""Examples: inputs and targets in the form that training and evaluation read them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from steelyard.data.array_examples import ArrayExamples, Examples, count_unusable
from steelyard.data.arrays import Numbers, as_targets, from_arrays
from steelyard.data.batches import split_dict
from steelyard.data.data_frames import Target, are_names, from_frame, is_frame
from steelyard.data.dataset_examples import Collate, DatasetExamples, from_dataset
from steelyard.data.hugging_face import as_torch, is_hugging_face
from steelyard.data.stream_examples import StreamExamples, from_stream
from steelyard.errors import InputError

__all__ = [
    "AnyExamples",
    "ArrayExamples",
    "DatasetExamples",
    "Examples",
    "StreamExamples",
    "count_unusable",
    "examples",
    "share_a_table",
]

AnyExamples = Examples | ArrayExamples | DatasetExamples | StreamExamples


def share_a_table(data: AnyExamples, other: AnyExamples | None) -> bool:
    """Whether both are rows of the same table with the same scaling."""
    if not isinstance(data, Examples) or not isinstance(other, Examples):
        return False
    same = data.inputs is other.inputs and data.targets is other.targets
    return same and (data.mean, data.std, data.double) == (other.mean, other.std, other.double)


def examples(
    data: Any,
    targets: Any = None,
    *,
    target: Target | None = None,
    collate_fn: Collate | None = None,
    mean: Numbers | None = None,
    std: Numbers | None = None,
    name: str = "data",
) -> AnyExamples:
    """Examples from what you have: arrays, a torch `Dataset`, or a `DataLoader`.

    Args:
        data: arrays or tensors that have a row for each example: (inputs, targets), (x1, x2, targets),
            ((x1, x2), targets), or a dict of them, whose targets are under `target`, "labels", "label",
            "targets", "target" or "y"; inputs alone, if there are no targets. Or a data set, of torch or
            Hugging Face, whose items are pairs, longer tuples, dicts or tensors. Or a `DataLoader`, or a
            function without arguments that returns one. Or a data frame of pandas or polars with columns of
            numbers: frame, or (frame, target).
        targets: the targets, if `data` are the inputs alone.
        target: the name of the targets in a dict or a frame; of a frame, also several names.
        collate_fn: makes a batch of a list of items, as in a `DataLoader`.
        mean: of bytes from 0 to 1, of all or of each channel, as in torchvision. Without `mean` and `std`,
            bytes reach the model as floats from 0 to 255.
        std: their standard deviation.
    """
    if isinstance(data, AnyExamples):
        return data
    data, targets, target = _with_targets_apart(data, targets, target)
    if targets is not None and target is not None:
        raise InputError(f"{name}: target={target!r} names a column, but targets are given; leave one out.")
    if is_frame(data):
        return from_frame(data, None if targets is None else as_targets(targets, name), target, name)
    if target is not None and not isinstance(target, str):
        raise InputError(f"{name}: several targets are columns of a data frame; give one name.")
    arrays = (data, targets) if targets is not None else _as_arrays(data, target, name)
    if arrays is not None:
        return from_arrays(*arrays, name, mean, std)
    if mean is not None or std is not None:
        raise InputError(f"{name}: mean and std are for arrays of bytes; scale items in the data set.")
    is_readable = hasattr(data, "__iter__") or hasattr(data, "__getitem__") or callable(data)
    if isinstance(data, tuple | str | type) or not is_readable:
        kind = data.__name__ if isinstance(data, type) else type(data).__name__
        raise InputError(f"{name}: give (inputs, targets), a torch Dataset or a DataLoader, not {kind}.")
    if is_hugging_face(data):
        data = as_torch(data, target, name)
    map_style = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if map_style and not isinstance(data, DataLoader | IterableDataset):
        return from_dataset(data, collate_fn, target, name)
    return from_stream(data, collate_fn, target, name)


def _with_targets_apart(data: Any, targets: Any, target: Any) -> tuple[Any, Any, Any]:
    """Data, and their targets or their names, if they came in a pair: (frame, "income"), (dict, "y")."""
    if isinstance(data, TensorDataset):
        data = data.tensors
    is_pair = targets is None and isinstance(data, tuple | list) and len(data) == 2
    if is_pair and (is_frame(data[0]) or (are_names(data[1]) and _has_names(data[0]))):
        data, targets = data
    if targets is not None and are_names(targets) and _has_names(data):
        return data, None, targets
    return data, targets, target


def _has_names(data: Any) -> bool:
    return is_frame(data) or isinstance(data, Mapping) or is_hugging_face(data)


def _as_arrays(data: Any, target: str | None, name: str) -> tuple[Any, Any] | None:
    """Inputs and targets if the data are arrays, and None if they are items of a data set or no data."""
    if isinstance(data, Mapping):
        if data and all(is_hugging_face(part) for part in data.values()):
            splits = ", ".join(map(repr, data))
            raise InputError(f"{name}: these are several splits of data ({splits}); give one of them.")
        return split_dict(data, target, name)
    is_list_of_items = isinstance(data, list) and (
        len(data) != 2 or isinstance(data[0], tuple) or all(isinstance(item, Mapping) for item in data)
    )
    is_array = isinstance(data, Tensor | np.ndarray)
    if not is_array and (not isinstance(data, list | tuple) or is_list_of_items or len(data) == 0):
        return None
    if target is not None:
        raise InputError(f"{name}: target={target!r} names a column, but arrays have no names; leave it out.")
    *inputs, targets = (data, None) if is_array else data if len(data) > 1 else (*data, None)
    return inputs[0] if len(inputs) == 1 else tuple(inputs), targets
