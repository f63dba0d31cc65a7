"""A batch: (inputs, targets). Inputs are a tensor, a tuple or a dict of tensors; targets a tensor or None."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steelyard.errors import InputError, unknown
from steelyard.task import TARGET_NAMES

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""What a model is called with. Tuples and dicts may hold further tuples and dicts."""
Batch = tuple[Any, Any]
"""Inputs and targets. Without targets, the model returns its own loss."""


def split(collated: Any, target: str | None = None) -> Batch:
    """Inputs and targets of a batch in any of the forms that data sets and loaders return.

    A pair is (inputs, targets). Of a longer tuple, the last entry is the target. A dict has its target under
    `target` or, without it, under the first of `TARGET_NAMES` that is there; if none is, there is no target.
    A tensor alone has no target.
    """
    inputs: Any
    if isinstance(collated, Mapping):
        inputs, targets = split_dict(collated, target)
    elif target is not None:
        raise InputError(f"target={target!r} names a column, but the data have no names; leave target out.")
    elif isinstance(collated, list | tuple) and len(collated) > 0:
        *before, targets = collated if len(collated) > 1 else (*collated, None)
        inputs = before[0] if len(before) == 1 else tuple(before)
    else:
        inputs, targets = collated, None
    inputs = _as_inputs(inputs)
    return inputs, None if targets is None else map_tensors(_as_tensors(targets, "targets"), whole_as_int64)


def split_dict(data: Mapping[Any, Any], target: str | None, of: str = "") -> tuple[dict[Any, Any], Any]:
    """The entries of a dict that are inputs, and the targets, if there are any."""
    columns = dict(data)
    if target is not None and target not in columns:
        raise unknown("target", target, map(str, columns), of)
    found = target or next((name for name in TARGET_NAMES if name in columns), None)
    targets = None if found is None else columns.pop(found)
    return columns, targets


def _as_inputs(inputs: Any) -> Any:
    """Inputs as tensors; a list, which `default_collate` makes of a tuple, becomes a tuple again."""
    if isinstance(inputs, Mapping):
        inputs = dict(inputs)
    elif isinstance(inputs, list):
        inputs = tuple(inputs)
    return _as_tensors(inputs, "inputs")


def _as_tensors(structure: Any, where: str) -> Any:
    """A structure whose leaves are tensors; anything else in it is refused by its place."""
    for name, leaf in leaves(structure, where):
        if not isinstance(leaf, Tensor | np.ndarray | None):
            kind = "text" if isinstance(leaf, str) else type(leaf).__name__
            advice = "tokenise it first" if kind == "text" else "make tensors of it"
            raise InputError(f"{name} of a batch is {kind}, not a tensor; {advice}, or give a collate_fn.")
    return map_tensors(structure, lambda tensor: tensor)


def leaves(structure: Any, where: str = "inputs") -> Iterator[tuple[str, Any]]:
    """Each value of nested dicts, lists and tuples, with its place: ("inputs['ids'][0]", value)."""
    if isinstance(structure, Mapping):
        for key, part in structure.items():
            yield from leaves(part, f"{where}[{key!r}]")
    elif isinstance(structure, list | tuple):
        for position, part in enumerate(structure):
            yield from leaves(part, f"{where}[{position}]")
    else:
        yield where, structure


def map_tensors(structure: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with `function(tensor)` for every tensor; arrays of numpy become tensors."""
    if isinstance(structure, Tensor):
        return function(structure)
    if isinstance(structure, np.ndarray):
        return function(torch.as_tensor(structure))
    if isinstance(structure, Mapping):
        return {key: map_tensors(part, function) for key, part in structure.items()}
    if isinstance(structure, list | tuple):
        parts = [map_tensors(part, function) for part in structure]
        if hasattr(structure, "_fields"):  # a named tuple, such as a PackedSequence
            return type(structure)(*parts)
        return type(structure)(parts)
    return structure


def on_cpu(structure: Any) -> Any:
    """The same structure with every tensor on the CPU; itself, if they all are."""
    tensors = (leaf for _, leaf in leaves(structure) if isinstance(leaf, Tensor))
    return structure if all(map(_is_on_cpu, tensors)) else map_tensors(structure, Tensor.cpu)


def _is_on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def size_of(inputs: Any) -> int:
    """The number of examples: the first dimension of the first tensor."""
    for _, leaf in leaves(inputs):
        if isinstance(leaf, Tensor) and leaf.dim() > 0:
            return len(leaf)
    raise InputError("a batch must hold a tensor with a row for each example.")


def whole_as_int64(targets: Tensor) -> Tensor:
    """Whole numbers as int64, which losses want; bool and fractional numbers as they are."""
    fits = targets.dtype in (torch.int64, torch.bool) or targets.is_floating_point() or targets.is_complex()
    return targets if fits else targets.long()


def in_sentence(error: Exception) -> str:
    """The first line of an error, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def cast(values: Tensor, double: bool | None) -> Tensor:
    """Fractional values as float64, or float64 as float32; others, and with None all, as they are."""
    if double:
        return values.double() if values.is_floating_point() else values
    return values.float() if double is False and values.dtype == torch.float64 else values


def as_input(values: Tensor, double: bool | None) -> Tensor:
    """`cast` of inputs: bytes become floats from 0 to 255."""
    if values.dtype == torch.uint8:
        return values.double() if double else values.float()
    return cast(values, double)


def as_inputs(structure: Any, double: bool | None) -> Any:
    """`as_input` for every tensor of a structure."""
    return map_tensors(structure, lambda tensor: as_input(tensor, double))


def has_bytes(structure: Any) -> bool:
    """Whether any tensor of a structure is one of bytes."""
    return any(isinstance(leaf, Tensor) and leaf.dtype == torch.uint8 for _, leaf in leaves(structure))


def cast_all(structure: Any, double: bool | None) -> Any:
    """`cast` for every tensor of a structure."""
    return structure if double is None else map_tensors(structure, lambda tensor: cast(tensor, double))
