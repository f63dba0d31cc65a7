"""The user's own metrics: torchmetrics objects whose states are sums, and functions averaged over examples.

A site sends the sums of a metric's states. The server adds them up over sites and computes the metric.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from steelyard.errors import InputError
from steelyard.metrics.named import Mode
from steelyard.metrics.summed import FROM_EXAMPLES, Array, MeanOf, Metric, Prepared, TorchMetric

EVIDENCE = frozenset(
    {"iterations", "converged", "factors", "united", "fell_back", "coherence"}
    | {"rank_error", "statistics_cut"}
)
"""What weighing and merging note about a round as a whole."""
RESERVED = EVIDENCE | frozenset(
    {"round", "client", "status", "weight", "norm", "loss", "steps", "num_examples", "evaluation", "bytes"}
    | {"used", "rejected", "accuracy", "nll", "ece", "brier", "mse", "r2", "test_loss", "temperature"}
    | {"effective_clients", "unscored", "seconds", "bytes_of_whole_models", "unknown_senders"}
    | {"exact_match", "shared_accuracy", "nll_scaled", "ece_scaled", "brier_scaled", "adversary", "attack"}
    | {"weight_accuracy_spearman", "reliability_accuracy_spearman"}
)
"""Names that the record uses itself."""


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

    def fitted(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> "OwnMetrics":
        """The metrics with what a first batch shows of them, such as the shapes of their states.

        Metrics that do not work on this batch are refused.
        """
        found = {name: each.fitted(outputs, targets, count, prepared) for name, each in self.metrics.items()}
        return OwnMetrics(found)

    def sized(self, outputs: Tensor) -> "OwnMetrics":
        """The metrics for outputs [B, ...] that are compared with numbers; other metrics stay as they are."""
        return OwnMetrics({name: metric.sized(outputs) for name, metric in self.metrics.items()})

    @property
    def size(self) -> int:
        """The number of sums of all metrics."""
        return int(self._starts[-1])

    @cached_property
    def counts(self) -> NDArray[np.bool_]:
        """Which of the sums are counts, and so never negative, [size]."""
        return np.concatenate([np.zeros(0, bool), *(metric.counts for metric in self.metrics.values())])

    @cached_property
    def divisors(self) -> NDArray[np.int64]:
        """The place of the sum that each sum is divided by to be a mean, or `FROM_EXAMPLES`, [size]."""
        places = [
            np.where(metric.divisors == FROM_EXAMPLES, FROM_EXAMPLES, metric.divisors + start)
            for start, metric in zip(self._starts, self.metrics.values(), strict=False)
        ]
        return np.concatenate([np.zeros(0, np.int64), *places])

    @cached_property
    def owners(self) -> NDArray[np.str_]:
        """The name of the metric that each sum belongs to, [size]."""
        return np.array([name for name, metric in self.metrics.items() for _ in range(metric.size)], np.str_)

    def sums(self, outputs: Any, targets: Any, count: int, prepared: Prepared) -> Array:
        """What one batch of `count` examples adds to the sums, [size].

        Functions get outputs and targets as they are. Objects of torchmetrics get `prepared` ones.
        """
        parts = [metric.sums(outputs, targets, count, prepared) for metric in self.metrics.values()]
        return np.concatenate([np.zeros(0), *parts])

    @cached_property
    def names(self) -> list[str]:
        """The names of all numbers that the metrics return."""
        return [each for name, metric in self.metrics.items() for each in metric.numbered(name)]

    @cached_property
    def modes(self) -> dict[str, Mode]:
        """Whether a number is better when larger ("max") or smaller ("min"), where its metric says it."""
        return {
            each: metric.mode
            for name, metric in self.metrics.items()
            if metric.mode is not None
            for each in metric.numbered(name)
        }

    def compute(self, sums: Array) -> dict[str, float]:
        """The metrics by name, from sums over all examples; nan where a metric has no finite value."""
        parts = zip(self.metrics.values(), np.split(sums, self._starts[1:-1]), strict=True)
        return dict(
            zip(self.names, [each for metric, part in parts for each in metric.compute(part)], strict=True)
        )

    def check_free(self, names: Iterable[str], reason: str) -> None:
        """Refuse metrics that have one of these names."""
        taken = {name.lower() for name in names}
        for name in (*self.metrics, *self.names):
            if name.lower() in taken:
                raise InputError(f"a metric cannot be called {name!r}: {reason}; choose another name.")


def _as_metric(name: str, metric: Any) -> Metric:
    if isinstance(metric, Metric):
        return metric
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
