"""Convert the named tensors of a model to one flat vector, and back.

The vector holds the parameters first and then the floating-point buffers (BatchNorm's running statistics).
Other buffers (BatchNorm's integer counters, masks, buffers outside the state dict) are never shared or
averaged: they are reset to their initial values.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from steelyard.errors import InputError

LARGE = 1 << 19
"""Values of a model from which a vector in between costs more than a call for each tensor."""


@dataclass(frozen=True)
class Entry:
    """The place of one named tensor in the vector."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start: int
    stop: int


@dataclass(frozen=True)
class Pair:
    """The places of two factors whose product B A is added to a weight (LoRA)."""

    a: Entry
    """A, [R, n]; of a convolution [R, ...]."""
    b: Entry
    """B, [m, R]; of a convolution [m, R, 1, ...]."""

    @property
    def rank(self) -> int:
        """R, the number of rows of A and of columns of B."""
        return self.a.shape[0]

    def split(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """A [..., R, n] and B [..., m, R] in vectors [..., K]; no copies."""
        a, b = (vectors[..., entry.start : entry.stop] for entry in (self.a, self.b))
        leading = vectors.shape[:-1]
        return a.view(*leading, self.rank, -1), b.view(*leading, -1, self.rank)


@dataclass(frozen=True, eq=False)
class Layout:
    """The place of each tensor of a model in the flat vector."""

    parameters: tuple[Entry, ...]
    buffers: tuple[Entry, ...]
    constants: Mapping[str, Tensor]
    prefix: str = ""
    """The common prefix of all tensor names."""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The parameters that are factors of a product (`sharing.Adapter`)."""
        return ()

    def within(self, prefix: str) -> "Layout":
        """The layout of the tensors whose names start with `prefix`, in a vector of their own."""
        kept = [entry for entry in self.entries if entry.name.startswith(prefix)]
        stops = list(itertools.accumulate(entry.shape.numel() for entry in kept))
        moved = tuple(
            replace(entry, start=stop - entry.shape.numel(), stop=stop)
            for entry, stop in zip(kept, stops, strict=True)
        )
        count = sum(entry.name.startswith(prefix) for entry in self.parameters)
        constants = {name: value for name, value in self.constants.items() if name.startswith(prefix)}
        return Layout(moved[:count], moved[count:], constants, prefix)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return self.parameters + self.buffers

    @property
    def num_parameters(self) -> int:
        return self.parameters[-1].stop if self.parameters else 0

    @property
    def size(self) -> int:
        return self.entries[-1].stop if self.entries else 0

    @property
    def nbytes(self) -> int:
        """Size of one vector in bytes."""
        return self.size * self.dtype.itemsize

    @cached_property
    def dtype(self) -> torch.dtype:
        """float64 if the model has float64 tensors, otherwise float32."""
        double = any(entry.dtype == torch.float64 for entry in self.entries)
        return torch.float64 if double else torch.float32


def layout_of(model: nn.Module, leave_out: Collection[str] = (), share_buffers: bool = True) -> Layout:
    """The layout of a model without the parameters in `leave_out`. Tied tensors count once.

    Buffers that are not shared are constants, which are reset to their initial values.
    """
    saved = model.state_dict().keys() if share_buffers else ()
    buffers = dict(model.named_buffers())
    named = ((name, value) for name, value in model.named_parameters() if name not in leave_out)
    parameters = _entries(named, 0)
    shared = {name: value for name, value in buffers.items() if name in saved and value.is_floating_point()}
    constants = {name: value.clone() for name, value in buffers.items() if name not in shared}
    if not parameters:
        raise InputError(f"the model {type(model).__name__} has no parameters to train.")
    return Layout(parameters, _entries(shared.items(), parameters[-1].stop), constants)


def _entries(tensors: Iterable[tuple[str, Tensor]], start: int) -> tuple[Entry, ...]:
    entries = []
    for name, value in tensors:
        if not value.is_floating_point():
            raise InputError(
                f"parameter {name!r} is {value.dtype}; steelyard can only share real floating-point tensors."
            )
        entries.append(Entry(name, value.shape, value.dtype, start, start + value.numel()))
        start = entries[-1].stop
    return tuple(entries)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """A model's parameters and buffers by name, detached; writing to them changes the model."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach() for name, tensor in tensors.items()}


def flatten(tensors: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """The parameters and floating-point buffers as one new vector."""
    found = [tensors[entry.name] for entry in layout.entries]
    if len(found) == 1:
        return found[0].reshape(-1).to(layout.dtype, copy=True)
    vector: Tensor = _flatten_dense_tensors(found)  # type: ignore[no-untyped-call]
    return vector.to(layout.dtype)


def subtract(tensors: Mapping[str, Tensor], before: Tensor, layout: Layout, out: Tensor) -> None:
    """Write the parameters and floating-point buffers minus an earlier vector of theirs into `out`."""
    if layout.size < LARGE:
        torch.sub(flatten(tensors, layout), before, out=out)
        return
    for entry in layout.entries:
        old, new = (vector[entry.start : entry.stop].view(entry.shape) for vector in (before, out))
        torch.sub(tensors[entry.name], old, out=new)


def load(tensors: Mapping[str, Tensor], vector: Tensor, layout: Layout) -> None:
    """Write a vector into a model, and reset the buffers that are not shared to their initial values."""
    found = [tensors[entry.name] for entry in layout.entries]
    # One call for all tensors: a call for each takes three times as long in small models.
    torch._foreach_copy_(found, _unflatten_dense_tensors(vector, found))  # type: ignore[no-untyped-call]
    for name, value in layout.constants.items():
        tensors[name].copy_(value)
