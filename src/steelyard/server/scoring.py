"""Metrics of a model, from scores on the server's own test set and on the clients' data."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from steelyard.metrics.fairness import fairness
from steelyard.metrics.regression import client_mse_summary
from steelyard.metrics.scores import Scores
from steelyard.metrics.temperature import merge_temperatures
from steelyard.server.score_screening import ByClient
from steelyard.sites import ScoreTable, ServerTestSet
from steelyard.types import ClientId, Message


@dataclass(frozen=True)
class Evaluation:
    """How good a model is: metrics of the round, and one number for each client."""

    metrics: Mapping[str, float]
    measure: str = "accuracy"
    """What the number of a client is: "accuracy", or "mse" in regression."""
    clients: Mapping[ClientId, float] | None = None
    calibration: tuple[tuple[float, float, float], ...] = ()
    """As in `Round`: on the common test set, or else on the test data of all clients together."""


def evaluate(
    model: Message,
    test: ServerTestSet | None,
    answers: ByClient,
    table: ScoreTable | None,
    num_examples: Mapping[ClientId, int],
) -> Evaluation:
    """All metrics of a model. `num_examples` are the clients' training examples."""
    answers = dict(sorted(answers.items()))  # sums must not depend on who answered first
    metrics: dict[str, float] = {}
    common = None if test is None else test.scores(model)
    if common is not None:
        metrics |= _test_metrics(common)
    own = {client: scores["test"] for client, scores in answers.items() if "test" in scores}
    clients, means = _client_means(own, table)
    first = common or table or next(iter(own.values()), None)
    regression = first is not None and first.classes == 0
    if clients:
        values = torch.from_numpy(means)
        sizes = torch.tensor([num_examples.get(client, 0) for client in clients], dtype=torch.float64)
        metrics |= client_mse_summary(values) if regression else fairness(values, sizes)
    pooled = _pooled(list(own.values()))
    if pooled is not None:
        metrics |= {f"client_{name}": value for name, value in pooled.calibration().items()}
    if set().union(*answers.values()) - {"test", "held_out"}:
        metrics |= _private_metrics(answers)
    held_out = [scores["held_out"] for scores in answers.values() if "held_out" in scores]
    if held_out:
        temperature = merge_temperatures(
            [math.exp(scores.log_temperature) for scores in held_out],
            [scores.num_examples for scores in held_out],
        )
        metrics["temperature"] = temperature
        if test is not None:
            metrics |= test.scores(model, temperature).calibration("_scaled")
    by_client = dict(zip(clients, means.tolist(), strict=True))
    calibration = _calibration(common or pooled)
    return Evaluation(metrics, "mse" if regression else "accuracy", by_client, calibration)


def _client_means(
    own: Mapping[ClientId, Scores], table: ScoreTable | None
) -> tuple[Sequence[ClientId], NDArray[np.float64]]:
    """Clients in the order of their ids, and the accuracy or mean squared error of each, [J]."""
    parts = [] if table is None else [table.values[:, :2]]
    parts += [np.array([scores.values[:2] for scores in own.values()])] if own else []
    if not parts:
        return (), np.zeros(0)
    sums = np.concatenate(parts)
    means = sums[:, 1] / sums[:, 0]
    clients = [*(() if table is None else table.clients), *own]
    if len(parts) == 1:
        return clients, means
    order = np.argsort(np.array(clients, object))
    return [clients[place] for place in order], means[order]


def progress(metrics: Mapping[str, float]) -> float | None:
    """The score that `patience` watches, larger is better: on the test set, or else on the clients' own.

    Without any test data, it is the clients' training loss.
    """
    names = {"accuracy": 1, "mse": -1, "client_accuracy": 1, "client_mse": -1, "loss": -1}
    for name, sign in names.items():
        if name in metrics:
            return sign * metrics[name]
    return None


def _test_metrics(scores: Scores) -> dict[str, float]:
    if scores.is_regression:
        return {"mse": scores.mse, "r2": scores.r2}
    return {"accuracy": scores.accuracy, **scores.calibration()}


def _pooled(own: Sequence[Scores]) -> Scores | None:
    """Scores over the test examples of all clients together, where they sent details."""
    if not own or own[0].is_regression or not own[0].has_detail:
        return None
    return Scores(np.sum([scores.values for scores in own], axis=0), own[0].classes)


def _calibration(scores: Scores | None) -> tuple[tuple[float, float, float], ...]:
    if scores is None or scores.is_regression or not scores.has_detail:
        return ()
    bins = scores.bins
    return tuple(zip(bins.size.tolist(), bins.confidence.tolist(), bins.accuracy.tolist(), strict=True))


def _private_metrics(answers: ByClient) -> dict[str, float]:
    """Means over clients that have models of their own."""
    parts = {"common": "accuracy", "own_mix": "client_accuracy_own_mix", "shared": "shared_accuracy"}
    found: dict[str, list[float]] = {}
    for scores in answers.values():
        for part, name in parts.items():
            if part in scores and not scores[part].is_regression:
                found.setdefault(name, []).append(scores[part].accuracy)
        if "own_mix" in scores and scores["test"].has_detail:
            counts, recall = scores["test"].recall
            found.setdefault("client_accuracy_balanced", []).append(float(recall[counts > 0].mean()))
    return {name: statistics.fmean(values) for name, values in found.items()}
