"""Sums of the user's own metrics that clients send, screened: they must fit the examples and those of others.

Where they do not, the sums of that metric become nan, with the reason; the client's other scores stay.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steelyard.metrics.own import OwnMetrics
from steelyard.metrics.scores import Scores
from steelyard.metrics.summed import FROM_EXAMPLES
from steelyard.types import ClientId

Array = NDArray[np.float64]
OWN_NAMES = ("held_out", "test")  # data on which the user's own metrics are computed
MAX_POSITIONS = 1 << 24  # tokens or pixels of an example, each scored
MAX_SUM = 1e60  # of losses and errors: more than float32 models reach, and its square is finite
MIN_CLIENTS = 3  # fewer do not show which of them is unusual
MAX_MEAN_RATIO = 100.0  # of a function's mean to the median over clients
MAX_STATE_RATIO = MAX_MEAN_RATIO**2  # of a state to the median; it may be a sum of squares
MIN_USUAL = 1.0  # taken for smaller medians: most clients may have none of what is rare


class OwnRules(NamedTuple):
    """What sums of the user's own metrics look like."""

    metrics: OwnMetrics
    max_examples: int
    one_class_each: bool
    """Whether each example has one class, not one for each token or pixel."""


def screen_own(
    found: Mapping[ClientId, Mapping[str, Scores]], rules: OwnRules
) -> tuple[dict[ClientId, Mapping[str, Scores]], dict[ClientId, str]]:
    """Scores with nan for own sums that cannot be used, and the reason for each client that has some.

    The other values of the scores have been screened before.
    """
    usable, faults = dict(found), dict[ClientId, str]()
    for data in OWN_NAMES:
        sent = {client: scores[data] for client, scores in found.items() if data in scores}
        for client, (own, reason) in _faulty(sent, rules).items():
            usable[client] = {**usable[client], data: sent[client]._replace(own=own)}
            faults[client] = reason
    return usable, faults


def _faulty(sent: Mapping[ClientId, Scores], rules: OwnRules) -> dict[ClientId, tuple[Array, str]]:
    """The own sums on one data set of each client of which some cannot be used, with nan there, and why."""
    size = rules.metrics.size
    found = {
        client: (np.full(size, np.nan), f"sent {len(scores.own)} sums of own metrics, not {size}")
        for client, scores in sent.items()
        if len(scores.own) != size
    }
    clients = [client for client in sent if client not in found]
    if not (size and clients):
        return found
    rows = _faulty_rows([sent[client] for client in clients], rules)
    return found | {clients[row]: fault for row, fault in rows.items()}


def _faulty_rows(scores: Sequence[Scores], rules: OwnRules) -> dict[int, tuple[Array, str]]:
    """The own sums of each row of which some cannot be used, with nan there, and why."""
    metrics, sums = rules.metrics, np.stack([each.own for each in scores])
    endless = ~(np.abs(sums) <= MAX_SUM)
    false_counts = (sums < 0) | (sums > _largest_counts(scores, rules)) | (sums != np.floor(sums))
    impossible = metrics.counts & false_counts
    means = _means(sums, scores, metrics)
    believed = _largest_means(np.where(endless | impossible, np.nan, means), metrics)
    faulty = endless | impossible | (~metrics.counts & (means > believed))
    found: dict[int, tuple[Array, str]] = {}
    for row in np.flatnonzero(faulty.any(axis=1)).tolist():
        place = int(faulty[row].argmax())
        name = f"own metric {str(metrics.owners[place])!r}"
        if endless[row, place]:
            reason = f"sent sums of the {name} that are not finite"
        elif impossible[row, place]:
            reason = f"sent counts of the {name} that its examples cannot have"
        else:
            reason = (
                f"sent sums of the {name} of {means[row, place]:.3g} an example; beside those of the other "
                f"clients, up to {believed[place]:.3g} is believed"
            )
        unusable = np.isin(metrics.owners, metrics.owners[faulty[row]])
        found[row] = np.where(unusable, np.nan, sums[row]), reason
    return found


def _largest_counts(scores: Sequence[Scores], rules: OwnRules) -> Array:
    """How large each sum can be if it is a count, [J, S]."""
    divisors = rules.metrics.divisors
    of_functions = np.isin(np.arange(len(divisors)), divisors[divisors != FROM_EXAMPLES])
    largest = [np.where(of_functions, _max_examples(each, rules), _max_counted(each)) for each in scores]
    return np.stack(largest)


def _max_examples(scores: Scores, rules: OwnRules) -> float:
    """How many examples a function was averaged over, at most; scores may be of tokens or pixels."""
    each_once = rules.one_class_each or scores.kind in ("labels", "numbers")
    return float(scores.values[0]) if each_once else rules.max_examples


def _max_counted(scores: Scores) -> float:
    """How much a metric can have counted: some metrics count each example once for every pair of classes."""
    return float(scores.values[0]) * (float(scores.classes or scores.labels) ** 2 or MAX_POSITIONS)


def _means(sums: Array, scores: Sequence[Scores], metrics: OwnMetrics) -> Array:
    """The magnitude of each sum for each example, token or pixel, [J, S]; of a function, that of its mean."""
    counted = np.array([[each.values[0]] for each in scores])
    divisors = np.where(metrics.divisors == FROM_EXAMPLES, counted, sums[:, metrics.divisors])
    means: Array = np.abs(sums) / np.where(divisors >= 1, divisors, 1)
    return means


def _largest_means(means: Array, metrics: OwnMetrics) -> Array:
    """How large the mean of each sum may be beside those of all clients, [S]; `means` are nan if unusable."""
    ratios = np.where(metrics.divisors == FROM_EXAMPLES, MAX_STATE_RATIO, MAX_MEAN_RATIO)
    few = (~np.isnan(means)).sum(axis=0) < MIN_CLIENTS
    medians = np.nanmedian(np.where(few, 0.0, means), axis=0)
    return np.where(few, np.inf, ratios * np.maximum(medians, MIN_USUAL))
