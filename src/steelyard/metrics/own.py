"""The user's own metrics: torchmetrics objects whose states are sums, and functions averaged over examples.

A site sends the sums of a metric's states. The server adds them up over sites and computes the metric.
"""

import copy
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.errors import InputError

Array = NDArray[np.float64]
RESERVED = frozenset(
    {"round", "client", "status", "weight", "norm", "loss", "steps", "num_examples", "evaluation", "bytes"}
    | {"used", "rejected", "accuracy", "nll", "ece", "brier", "mse", "r2", "test_loss", "temperature"}
    | {"effective_clients", "unscored", "seconds", "bytes_of_whole_models", "unknown_senders"}
    | {"exact_match", "shared_accuracy", "nll_scaled", "ece_scaled", "brier_scaled", "adversary", "attack"}
)
"""Names that the record uses itself."""
MAX_VALUES = 100  # numbers that one metric may return


class OwnMetrics:
    """Metrics by name, and where the sums of each are in one vector."""

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        self.metrics: dict[str, Metric] = {}
        for name, metric in _expanded(metrics):
            _check_name(name, self.metrics)
            self.metrics[name] = _as_metric(name, metric)
        self._starts = [0, *np.cumsum([metric.size for metric in self.metrics.values()], dtype=int).tolist()]
        for name, times in Counter(self.names).items():
            if times > 1:
                raise InputError(f"two metrics are called {name!r}; rename one of them.")

    def __len__(self) -> int:
        return len(self.metrics)

    def __repr__(self) -> str:
        return f"OwnMetrics({', '.join(self.metrics)})"

    @property
    def size(self) -> int:
        """The number of sums of all metrics."""
        return int(self._starts[-1])

    @cached_property
    def counts(self) -> NDArray[np.bool_]:
        """Which of the sums are counts, and so never negative, [size]."""
        return np.concatenate([np.zeros(0, bool), *(metric.counts for metric in self.metrics.values())])

    def sums(self, outputs: Any, targets: Any, count: int, prepared: "Prepared") -> Array:
        """What one batch of `count` examples adds to the sums, [size].

        Functions get outputs and targets as they are. Objects of torchmetrics get `prepared` ones.
        """
        parts = [metric.sums(outputs, targets, count, prepared) for metric in self.metrics.values()]
        return np.concatenate([np.zeros(0), *parts])

    @cached_property
    def names(self) -> list[str]:
        """The names of all numbers that the metrics return."""
        empty = {name: metric.compute(np.zeros(metric.size)) for name, metric in self.metrics.items()}
        return [each for name, numbers in empty.items() for each in _numbered(name, numbers)]

    def compute(self, sums: Array) -> dict[str, float]:
        """The metrics by name, from sums over all examples; a metric that cannot be computed is left out."""
        found: dict[str, float] = {}
        for place, (name, metric) in enumerate(self.metrics.items()):
            numbers = metric.compute(sums[self._starts[place] : self._starts[place + 1]])
            named = zip(_numbered(name, numbers), numbers, strict=True)
            found |= {each: value for each, value in named if math.isfinite(value)}
        return found


Prepared = Callable[[bool], tuple[Tensor, Tensor]]
"""Probabilities (or numbers) and targets in the shapes of torchmetrics; True: of a metric for two classes."""


class Metric:
    """One metric as sums."""

    size: int
    counts: NDArray[np.bool_]

    def sums(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Array:
        raise NotImplementedError

    def compute(self, sums: Array) -> list[float]:
        raise NotImplementedError


class MeanOf(Metric):
    """A function of (outputs, targets), averaged over examples: total and count."""

    size = 2
    counts = np.array([False, True])

    def __init__(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        self.name, self.function = name, function

    def sums(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Array:
        try:
            value = torch.as_tensor(self.function(outputs, targets)).detach()
        except Exception as error:
            raise InputError(
                f"metric {self.name!r} failed on a batch: {type(error).__name__}: {in_words(error)}; it must "
                "return one number, or one for each example."
            ) from error
        if value.dim() == 1 and len(value) == count:  # one number for each example
            value = value.double().mean()
        if value.numel() != 1:
            raise InputError(
                f"metric {self.name!r} returned a tensor of shape {tuple(value.shape)}; return one number, "
                "or one for each example."
            )
        return np.array([float(value) * count, count])

    def compute(self, sums: Array) -> list[float]:
        return [float(sums[0] / sums[1])] if sums[1] > 0 else [math.nan]


class TorchMetric(Metric):
    """An object of torchmetrics: its states, flattened one after the other."""

    def __init__(self, name: str, metric: Any) -> None:
        self.name, self.metric = name, copy.deepcopy(metric)
        self.metric.reset()
        self.states: dict[str, Tensor] = {key: value.clone() for key, value in metric._defaults.items()}
        self.size = sum(state.numel() for state in self.states.values())
        whole = [np.full(state.numel(), not state.is_floating_point()) for state in self.states.values()]
        self.counts = np.concatenate([np.zeros(0, bool), *whole])
        self.for_two_classes = any(each.__name__.startswith("Binary") for each in type(metric).__mro__)

    def sums(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Array:
        metric = self.metric
        metric.reset()
        try:
            metric.update(*prepared(self.for_two_classes))
        except Exception as error:
            raise InputError(
                f"metric {self.name!r} cannot take these predictions: {in_words(error)}."
            ) from error
        return torch.cat([getattr(metric, key).detach().double().reshape(-1) for key in self.states]).numpy()

    def compute(self, sums: Array) -> list[float]:
        metric = copy.deepcopy(self.metric)
        metric.reset()
        parts = torch.split(torch.tensor(sums), [state.numel() for state in self.states.values()])
        for (key, default), part in zip(self.states.items(), parts, strict=True):
            setattr(metric, key, part.reshape(default.shape).to(default.dtype))
        metric._update_count = 1  # its states are set, so that it may compute
        try:
            with warnings.catch_warnings():  # of classes that have no examples
                warnings.simplefilter("ignore")
                value = torch.as_tensor(metric.compute()).double().reshape(-1)
        except Exception:  # sums that a client invented
            return [math.nan]
        if len(value) > MAX_VALUES:
            raise InputError(
                f"metric {self.name!r} returns {len(value)} numbers; average them (`average='macro'`)."
            )
        return [float(each) for each in value]


def _numbered(name: str, numbers: Sequence[float]) -> list[str]:
    """A name for each number that a metric returns."""
    return [name] if len(numbers) == 1 else [f"{name}_{place}" for place in range(len(numbers))]


def in_words(error: Exception) -> str:
    """An error in one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")


def _as_metric(name: str, metric: Any) -> Metric:
    if hasattr(metric, "_reductions") and hasattr(metric, "_defaults"):
        _check_states(name, metric)
        return TorchMetric(name, metric)
    if isinstance(metric, type) or not callable(metric):
        found = f"the class {metric.__name__}" if isinstance(metric, type) else type(metric).__name__
        raise InputError(
            f"metric {name!r} must be an object of torchmetrics or a function of (outputs, targets), not "
            f"{found}."
        )
    return MeanOf(name, metric)


def _check_states(name: str, metric: Any) -> None:
    """Refuse metrics whose states cannot be added up over sites."""
    kind = type(metric).__name__
    for key, reduction in metric._reductions.items():
        if isinstance(metric._defaults[key], list):
            raise InputError(
                f"metric {name!r}: {kind} keeps every prediction, which must not leave a site; take a form "
                "with sums, such as `thresholds=200` or a smaller average."
            )
        if getattr(reduction, "__name__", "") != "dim_zero_sum":
            raise InputError(
                f"metric {name!r}: the state {key!r} of {kind} is not a sum, so that sites cannot be added "
                "up; take another metric, or write a function of (outputs, targets)."
            )
    if not metric._reductions:
        raise InputError(f"metric {name!r}: {kind} has no states of its own; give the metrics that it wraps.")


def _expanded(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Metrics by name; a collection of torchmetrics gives several."""
    if not isinstance(metrics, Mapping):
        raise InputError(f"metrics must be {{name: metric}}, not {type(metrics).__name__}.")
    for name, metric in metrics.items():
        if type(metric).__name__ == "MetricCollection":
            yield from ((f"{name}_{key}", each) for key, each in metric.items())
        else:
            yield name, metric


def _check_name(name: object, known: Mapping[str, Any]) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w{0,39}", name, re.ASCII):
        raise InputError(f"a metric cannot be called {name!r}: take a letter, then letters, digits and _.")
    lower = name.lower()
    taken = lower in RESERVED or lower.startswith(("client_", "validation_", "held_out_"))
    if taken or lower in map(str.lower, known):
        raise InputError(f"a metric cannot be called {name!r}: that name is taken; choose another.")


NO_METRICS = OwnMetrics({})
