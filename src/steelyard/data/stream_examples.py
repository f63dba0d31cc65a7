"""Examples that come batch after batch: from a `DataLoader`, an `IterableDataset`, or a function of them."""

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from steelyard.data.batches import (
    Batch,
    as_inputs,
    cast_all,
    has_bytes,
    in_sentence,
    size_of,
    split,
    split_dict,
)
from steelyard.data.dataset_examples import Collate, collated, joined_labels
from steelyard.errors import InputError, warn_caller
from steelyard.seeds import seeded

T = TypeVar("T")

LOOK = 256  # examples of a batch that is read to count


class StreamExamples:
    """Examples in the order in which they come; each pass reads them from the beginning.

    A `DataLoader` keeps its own batch size, order and `collate_fn`. It is read in the process of the client,
    without workers of its own: then the same seed gives the same batches wherever a client is simulated.
    """

    columns: None = None
    input_shape: None = None

    def __init__(
        self,
        source: Any,
        collate_fn: Collate | None = None,
        target: str | None = None,
        name: str = "data",
        double: bool | None = None,
    ) -> None:
        """`source` is a `DataLoader`, a function that returns an iterable of batches, or iterable items."""
        self.source, self.collate_fn, self.target, self.name = source, collate_fn, target, name
        self.double = double
        self.had_bytes = False
        """Whether inputs of a batch that was read were bytes, which have become floats."""

    def passes(self, batch_size: int) -> Iterator[Batch]:
        """One pass over all batches. Items that are not in batches yet come `batch_size` at a time.

        Random orders and transforms draw from the global generators (`seeds.seeded`).
        """
        is_empty = True
        for found in self._collated(batch_size):
            try:
                if is_empty:
                    self._check_first(found)
                inputs, targets = split(found, self.target)
            except InputError as error:
                raise InputError(f"{self.name}: {error}") from None
            is_empty = False
            self.had_bytes = self.had_bytes or has_bytes(inputs)
            yield as_inputs(inputs, self.double), cast_all(targets, self.double)
        if is_empty and vars(self).get("_size"):
            raise InputError(f"{self.name}: a further pass has no batches; return new ones for every pass.")

    def __len__(self) -> int:
        """The number of examples of a pass. If the source does not know it, one pass is made to count."""
        return self._size

    def batches_per_pass(self, batch_size: int) -> int:
        """The batches of a pass; only items that are not in batches yet come `batch_size` at a time.

        If a `DataLoader` does not know it, or the source is a function, one pass is made to count.
        """
        if isinstance(self.source, DataLoader):
            known = _length(self.source)
            return self._counted[1] if known is None else known
        return self._counted[1] if is_factory(self.source) else -(-len(self) // batch_size)

    @cached_property
    def _size(self) -> int:
        known = _known_size(self.source)
        return self._counted[0] if known is None else known

    @cached_property
    def _counted(self) -> tuple[int, int]:
        """The examples and the batches of a pass, which is made to count them."""
        sizes = self._look("count", lambda inputs, _: size_of(inputs))
        return sum(sizes), len(sizes)

    @property
    def labels(self) -> Tensor:
        """The targets of one pass, in its order, which another pass may not have; to count classes."""
        return joined_labels(self._look("labels", lambda _, targets: targets), self.double, self.name)

    @property
    def rows(self) -> NoReturn:
        raise self._refusal()

    def take(self, positions: Tensor) -> NoReturn:
        raise self._refusal()

    def batch(self, positions: Tensor) -> NoReturn:
        raise self._refusal()

    def span(self, start: int, stop: int) -> NoReturn:
        raise self._refusal()

    def to(self, dtype: torch.dtype) -> "StreamExamples":
        """The same examples for a model of this floating-point type."""
        double = dtype == torch.float64
        if self.double == double:
            return self
        changed = copy.copy(self)
        changed.double = double
        return changed

    def _refusal(self) -> InputError:
        return InputError(
            f"{self.name}: single examples are needed, but the data come batch after batch; give arrays or a "
            "map-style torch Dataset."
        )

    def _check_first(self, found: Any) -> None:
        """Refuse single examples where batches are needed: their target is one number."""
        if not isinstance(self.source, DataLoader) and not is_factory(self.source):
            return  # items, of which batches are made here
        target = split_dict(found, self.target)[1] if isinstance(found, Mapping) else found
        target = target[-1] if isinstance(target, list | tuple) and len(target) > 1 else target
        is_array = isinstance(target, Tensor | np.ndarray)
        if isinstance(target, int | float | np.generic) or (is_array and target.ndim == 0):
            raise InputError(
                "single examples come where batches are needed; yield batches, whose inputs and targets have "
                "a row for each example, or give the DataLoader a batch_size."
            )

    def _look(self, purpose: str, read: Callable[[Any, Any], T]) -> list[T]:
        """What is read of each batch of a pass that leaves the global generators as they were.

        Errors name the data.
        """
        with seeded(0, purpose):
            try:
                return [read(*batch) for batch in self.passes(LOOK)]
            except InputError:
                raise
            except Exception as error:
                kind = type(error).__name__
                raise InputError(
                    f"{self.name}: the data cannot be read: {kind}: {in_sentence(error)}."
                ) from error

    def _collated(self, batch_size: int) -> Iterable[Any]:
        """Batches as the source gives them."""
        source, is_function = self.source, is_factory(self.source)
        if is_function:
            source = source()
        if isinstance(source, DataLoader):
            return _read(source)
        if not is_function:
            return _batched(source, batch_size, self.collate_fn, self.name)
        if isinstance(source, tuple | Mapping | Tensor | str) or not hasattr(source, "__iter__"):
            raise InputError(
                f"{self.name}: the function must return batches, as a DataLoader does, not "
                f"{type(source).__name__}; give arrays themselves."
            )
        batches: Iterable[Any] = source
        return batches


def from_stream(source: Any, collate_fn: Collate | None, target: str | None, name: str) -> StreamExamples:
    """Examples from a `DataLoader`, an iterable of items, or a function that returns batches."""
    if collate_fn is not None and (isinstance(source, DataLoader) or is_factory(source)):
        raise InputError(f"{name}: the data come in batches; give the collate_fn to their DataLoader.")
    if isinstance(source, Iterator):
        raise InputError(
            f"{name}: {type(source).__name__} can be read only once; give a function that returns a new one."
        )
    if isinstance(source, DataLoader) and source.num_workers > 0:
        warn_caller(
            f"{name}: the {source.num_workers} workers of the DataLoader are not used, so that every engine "
            "reads the same batches."
        )
    return StreamExamples(source, collate_fn, target, name)


def is_factory(source: Any) -> bool:
    """Whether it is a function to call for every pass; a class is not."""
    return callable(source) and not isinstance(source, type) and not hasattr(source, "__iter__")


def _batched(items: Iterable[Any], size: int, collate_fn: Collate | None, name: str) -> Iterator[Any]:
    """Items in batches of `size`."""
    iterator = iter(items)
    while found := list(itertools.islice(iterator, size)):
        yield collated(found, collate_fn, name)


def _known_size(source: Any) -> int | None:
    """The number of examples of a pass, if it is known without one."""
    if not isinstance(source, DataLoader):
        return None if is_factory(source) else _length(source)
    is_iterable = isinstance(source.dataset, torch.utils.data.IterableDataset)
    ordered = source.dataset if is_iterable or source.batch_size is None else source.sampler
    size = _length(ordered)
    if size is not None and source.batch_size and source.drop_last:
        size -= size % source.batch_size
    return size


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError):
        return None


def _read(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader.

    Its own generators are seeded from torch's, so that a pass repeats wherever it is made. They belong to the
    user, so they are restored after the pass, also after one that is not read to its end.
    """
    generators = _generators_of(loader)
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        yield from _in_this_process(loader)
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _generators_of(loader: DataLoader[Any]) -> list[torch.Generator]:
    """The generators that a loader and its samplers hold, each once."""
    samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    holders: tuple[Any, ...] = (loader, *samplers, loader.batch_sampler)
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


def _in_this_process(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The same loader without workers, which a simulated client's process may not start."""
    changed = copy.copy(loader)
    without = {
        "num_workers": 0,
        "prefetch_factor": None,
        "timeout": 0,
        "pin_memory": False,
        "_iterator": None,
    }
    vars(changed).update(without)
    return changed
