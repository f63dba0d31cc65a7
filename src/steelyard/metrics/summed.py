"""One metric of the user's own, as sums that add up over batches and sites."""

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.errors import InputError
from steelyard.metrics.named import Mode

Array = NDArray[np.float64]
MAX_VALUES = 100  # numbers that one metric may return
FROM_EXAMPLES = -1
"""In `Metric.divisors`: the sum is over the examples, tokens or pixels that were scored."""

Prepared = Callable[[bool], tuple[Any, Any]]
"""Probabilities (or numbers) and targets in the shapes of torchmetrics; True: of a metric for two classes."""


class Metric(ABC):
    """One metric as sums."""

    size: int
    """The number of sums."""
    counts: NDArray[np.bool_]
    """Which of the sums are counts, and so never negative, [size]."""
    divisors: NDArray[np.int64]
    """The place of the sum that each sum is divided by to be a mean, or `FROM_EXAMPLES`, [size]."""
    mode: Mode | None = None
    """Whether it is better when it is larger ("max") or smaller ("min"); None: that is not known."""
    shape: tuple[int, ...] = ()
    """Of what the metric returns."""

    @abstractmethod
    def fitted(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> "Metric":
        """The metric with what a first batch shows; refused if it does not work on that batch."""

    def sized(self, outputs: Tensor) -> "Metric":
        """The metric for outputs [B, ...] that are compared with numbers."""
        return self

    @abstractmethod
    def sums(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Array:
        """What one batch of `count` examples adds to the sums, [size]."""

    @abstractmethod
    def compute(self, sums: Array) -> list[float]:
        """The numbers that the metric returns, row by row; nan where it has no finite value."""

    def numbered(self, name: str) -> list[str]:
        """A name for each number that the metric returns: `f1_2`, or `confusion_0_2` in a matrix."""
        return ["_".join(map(str, (name, *place))) for place in product(*map(range, self.shape))]


class MeanOf(Metric):
    """A function of (outputs, targets), averaged over examples: total and count."""

    size = 2
    counts = np.array([False, True])
    divisors = np.array([1, FROM_EXAMPLES])

    def __init__(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        self.name, self.function = name, function

    def fitted(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Metric:
        value = self._value(outputs, targets)
        self._mean(value, count)
        if value.numel() == count > 1 and isinstance(outputs, Tensor) and isinstance(targets, Tensor):
            one = None  # are these numbers of the examples, or of as many outputs?
            with suppress(InputError):  # it may need several examples
                one = self._value(outputs[:1], targets[:1])
            if one is not None:
                self._mean(one, 1)
        return self

    def sums(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Array:
        return np.array([self._mean(self._value(outputs, targets), count) * count, count])

    def _mean(self, value: Tensor, count: int) -> float:
        """The mean over `count` examples of what the function returned."""
        if value.dim() == 1 and len(value) == count:  # one number for each example
            value = value.double().mean()
        if value.numel() != 1:
            batch = "one example" if count == 1 else f"{count} examples"
            raise InputError(
                f"metric {self.name!r} returned a tensor of shape {tuple(value.shape)} for {batch}; return "
                "one number, or one for each example."
            )
        return float(value)

    def _value(self, outputs: Any, targets: Any) -> Tensor:
        try:
            return torch.as_tensor(self.function(outputs, targets)).detach()
        except Exception as error:
            raise InputError(
                f"metric {self.name!r} failed on a batch: {type(error).__name__}: {in_words(error)}; it must "
                "return one number, or one for each example."
            ) from error

    def compute(self, sums: Array) -> list[float]:
        return [_finite(float(sums[0] / sums[1]))] if sums[1] > 0 else [math.nan]


class TorchMetric(Metric):
    """An object of torchmetrics: its states, flattened one after the other.

    Some states get their shape, or their type, from the first batch: R2Score has a number for each output.
    """

    def __init__(self, name: str, metric: Any, states: Mapping[str, Tensor] | None = None) -> None:
        self.name, self.metric = name, copy.deepcopy(metric)
        self.metric.reset()
        states = metric._defaults if states is None else states
        self.forms = {key: (state.shape, state.dtype) for key, state in states.items()}
        self.size = sum(state.numel() for state in states.values())
        whole = [np.full(state.numel(), not state.is_floating_point()) for state in states.values()]
        self.counts = np.concatenate([np.zeros(0, bool), *whole])
        self.divisors = np.full(self.size, FROM_EXAMPLES)
        larger = getattr(metric, "higher_is_better", None)
        self.mode = "max" if larger is True else "min" if larger is False else None
        self.for_two_classes = any(each.__name__.startswith("Binary") for each in type(metric).__mro__)
        self.shape = self._shape_of(np.zeros(self.size))

    def fitted(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> "TorchMetric":
        states = self._updated(prepared)
        found = TorchMetric(self.name, self.metric, states)
        found.shape = found._shape_of(4 * _flat(states))  # of 4 batches: R2Score needs two examples
        return found

    def sized(self, outputs: Tensor) -> "TorchMetric":
        rows = outputs.reshape(len(outputs), -1)
        zeros = torch.zeros_like(rows.squeeze(1))
        with suppress(InputError):  # it is not for numbers
            found = self.fitted(zeros, zeros, len(zeros), lambda two_classes: (zeros, zeros))
            return found if found.size != self.size else self
        return self

    def sums(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Array:
        states = self._updated(prepared)
        for key, state in states.items():
            shape, _ = self.forms[key]
            if state.shape != shape:
                raise InputError(
                    f"metric {self.name!r}: its state {key!r} has the shape {tuple(state.shape)}, and had "
                    f"{tuple(shape)} in the first batch, so that the two cannot be added up; take another "
                    "metric."
                )
        return _flat(states)

    def compute(self, sums: Array) -> list[float]:
        value, size = self._value(sums), math.prod(self.shape)
        if value is None or value.numel() != size:
            return [math.nan] * size
        return [_finite(float(each)) for each in value.double().reshape(-1)]

    def _updated(self, prepared: Prepared) -> dict[str, Tensor]:
        """The states after one batch."""
        self.metric.reset()
        try:
            self.metric.update(*prepared(self.for_two_classes))
        except Exception as error:
            raise InputError(
                f"metric {self.name!r} cannot take these predictions: {in_words(error)}."
            ) from error
        return {key: getattr(self.metric, key).detach() for key in self.forms}

    def _value(self, sums: Array) -> Tensor | None:
        """What the metric returns; None if that cannot be computed: of no examples, nan, or invented sums."""
        if np.isnan(sums).any():
            return None
        metric = copy.deepcopy(self.metric)
        metric.reset()
        parts = torch.split(torch.tensor(sums), [shape.numel() for shape, _ in self.forms.values()])
        for (key, (shape, dtype)), part in zip(self.forms.items(), parts, strict=True):
            setattr(metric, key, part.reshape(shape).to(dtype))
        metric._update_count = 1  # its states are set, so that it may compute
        try:
            with warnings.catch_warnings():  # of classes that have no examples
                warnings.simplefilter("ignore")
                value = metric.compute()
        except Exception:
            return None
        if not isinstance(value, Tensor | float | int):
            raise InputError(
                f"metric {self.name!r} returns a {type(value).__name__}; take one that returns a number, or "
                "a tensor of numbers."
            )
        return torch.as_tensor(value)

    def _shape_of(self, sums: Array) -> tuple[int, ...]:
        value = self._value(sums)
        if value is None or value.numel() == 1:
            return ()
        if value.numel() > MAX_VALUES:
            raise InputError(
                f"metric {self.name!r} returns {value.numel()} numbers; average them (`average='macro'`)."
            )
        return tuple(value.shape)


def _flat(states: Mapping[str, Tensor]) -> Array:
    parts = [state.double().reshape(-1) for state in states.values()]
    return torch.cat(parts).numpy() if parts else np.zeros(0)


def _finite(value: float) -> float:
    """The value; nan if it is infinite, because no record has infinite numbers."""
    return value if math.isfinite(value) else math.nan


def in_words(error: Exception) -> str:
    """An error in one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")
