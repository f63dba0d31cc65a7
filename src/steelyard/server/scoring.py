"""Metrics of a model, from scores on the server's own test set and on the clients' data."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import numpy as np
import torch
from numpy.typing import NDArray

from steelyard.metrics.fairness import fairness
from steelyard.metrics.own import NO_METRICS, OwnMetrics
from steelyard.metrics.regression import client_error_summary
from steelyard.metrics.scores import Kind, Scores
from steelyard.metrics.temperature import merge_temperatures
from steelyard.server.score_screening import ByClient
from steelyard.sites import ScoreTable, ServerTestSet
from steelyard.types import ClientId, Message

MEASURES: Mapping[Kind, str] = {
    "classes": "accuracy",
    "labels": "accuracy",
    "numbers": "mse",
    "loss": "test_loss",
}
"""The number that stands for a client's scores, by what the targets are."""


@dataclass(frozen=True)
class Evaluation:
    """How good a model is: metrics of the round, and numbers for each client."""

    metrics: Mapping[str, float]
    measure: str = "accuracy"
    """What the number of a client is: "accuracy", "mse" in regression, or "test_loss"."""
    clients: Mapping[ClientId, float] | None = None
    calibration: tuple[tuple[float, float, float], ...] = ()
    """As in `Round`: on the common test set, or else on the test data of all clients together."""
    own: Mapping[ClientId, Mapping[str, float]] = field(default_factory=dict)
    """The user's own metrics of each client."""


def evaluate(
    model: Message,
    test: ServerTestSet | None,
    answers: ByClient,
    table: ScoreTable | None,
    num_examples: Mapping[ClientId, int],
    own_metrics: OwnMetrics = NO_METRICS,
) -> Evaluation:
    """All metrics of a model. `num_examples` are the clients' training examples."""
    answers = dict(sorted(answers.items()))  # sums must not depend on who answered first
    metrics: dict[str, float] = {}
    common = None if test is None else test.scores(model)
    if common is not None:
        metrics |= metrics_of(common, own_metrics)
    own = {client: scores["test"] for client, scores in answers.items() if "test" in scores}
    clients, means = _client_means(own, table)
    kind = _kind(common, table, own)
    if clients:
        values = torch.from_numpy(means)
        sizes = torch.tensor([num_examples.get(client, 0) for client in clients], dtype=torch.float64)
        error = MEASURES[kind]
        metrics |= fairness(values, sizes) if error == "accuracy" else client_error_summary(values, error)
    pooled = pooled_scores(list(own.values()))
    if pooled is not None:
        metrics |= {f"client_{name}": value for name, value in _pooled_metrics(pooled, own_metrics).items()}
    if set().union(*answers.values()) - {"test", "held_out"}:
        metrics |= _private_metrics(answers)
    metrics |= _temperature_metrics(model, test, answers)
    by_client = dict(zip(clients, means.tolist(), strict=True))
    calibration = _calibration(common or pooled)
    found = {client: _known(own_metrics.compute(scores.own)) for client, scores in own.items() if own_metrics}
    return Evaluation(metrics, MEASURES[kind], by_client, calibration, found)


def metrics_of(scores: Scores, own_metrics: OwnMetrics = NO_METRICS) -> dict[str, float]:
    """The metrics of one data set. Scores that are not finite give none, and `unscored` = 1 says so."""
    if not np.isfinite(scores.values).all() or scores.values[0] == 0:
        return {"unscored": 1.0}
    own = own_metrics.compute(scores.own) if own_metrics else {}
    if scores.kind == "classes":
        calibration = scores.calibration() if scores.has_detail else {"nll": scores.nll}
        return {"accuracy": scores.accuracy, **calibration, **own}
    if scores.kind == "labels":
        found = {"accuracy": scores.accuracy, "exact_match": scores.exact_match, "nll": scores.nll}
        return {**found, **({"f1": scores.f1} if math.isfinite(scores.f1) else {}), **own}
    if scores.kind == "numbers":
        return {"mse": scores.mse, "r2": scores.r2, **own}
    return {"test_loss": scores.main, **own}


def _kind(common: Scores | None, table: ScoreTable | None, own: Mapping[ClientId, Scores]) -> Kind:
    """What the targets are."""
    if table is not None and common is None:
        return "classes" if table.classes else "numbers"
    first = common or next(iter(own.values()), None)
    return "classes" if first is None else first.kind


def _temperature_metrics(model: Message, test: ServerTestSet | None, answers: ByClient) -> dict[str, float]:
    """The temperature that fits what clients hold out, and the test set's calibration at it."""
    every = [scores["held_out"] for scores in answers.values() if "held_out" in scores]
    held_out = [scores for scores in every if scores.log_temperature]  # of a stream, none is fitted
    if not held_out:
        return {}
    temperature = merge_temperatures(
        [math.exp(scores.log_temperature) for scores in held_out],
        [scores.num_examples for scores in held_out],
    )
    scaled = {} if test is None else test.scores(model, temperature).calibration("_scaled")
    return {"temperature": temperature, **scaled}


def _client_means(
    own: Mapping[ClientId, Scores], table: ScoreTable | None
) -> tuple[Sequence[ClientId], NDArray[np.float64]]:
    """Clients in the order of their ids, and the accuracy or mean squared error of each, [J]."""
    parts = [] if table is None else [table.values[:, 1] / table.values[:, 0]]
    parts += [np.array([scores.main for scores in own.values()])] if own else []
    if not parts:
        return (), np.zeros(0)
    means = np.concatenate(parts)
    clients = [*(() if table is None else table.clients), *own]
    if len(parts) == 1:
        return clients, means
    order = np.argsort(np.array(clients, object))
    return [clients[place] for place in order], means[order]


def pooled_scores(parts: Sequence[Scores]) -> Scores | None:
    """Scores over the examples of all clients together; own sums that were dropped, nan, do not count."""
    total = reduce(add, parts) if parts else None
    if total is None or not np.isnan(total.own).any():
        return total
    own = np.stack([scores.own for scores in parts])
    dropped = np.isnan(own)
    sums = np.where(dropped, 0.0, own).sum(axis=0)
    return total._replace(own=np.where(dropped.all(axis=0), np.nan, sums))


def _known(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that have a value."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _pooled_metrics(pooled: Scores, own_metrics: OwnMetrics) -> dict[str, float]:
    """Metrics over all clients' test examples, besides those that are means over clients."""
    own = own_metrics.compute(pooled.own) if own_metrics else {}
    if pooled.kind == "labels":
        return {"nll": pooled.nll, **({"f1": pooled.f1} if math.isfinite(pooled.f1) else {}), **own}
    return {**(pooled.calibration() if pooled.has_detail else {}), **own}


def _calibration(scores: Scores | None) -> tuple[tuple[float, float, float], ...]:
    if scores is None or not scores.has_detail:
        return ()
    bins = scores.bins
    return tuple(zip(bins.size.tolist(), bins.confidence.tolist(), bins.accuracy.tolist(), strict=True))


def _private_metrics(answers: ByClient) -> dict[str, float]:
    """Means over clients that have models of their own."""
    parts = {"common": "accuracy", "own_mix": "client_accuracy_own_mix", "shared": "shared_accuracy"}
    found: dict[str, list[float]] = {}
    for scores in answers.values():
        for part, name in parts.items():
            if part in scores and scores[part].kind in ("classes", "labels"):
                found.setdefault(name, []).append(scores[part].accuracy)
        if "own_mix" in scores and scores["test"].has_detail:
            counts, recall = scores["test"].recall
            found.setdefault("client_accuracy_balanced", []).append(float(recall[counts > 0].mean()))
    return {name: statistics.fmean(values) for name, values in found.items()}
