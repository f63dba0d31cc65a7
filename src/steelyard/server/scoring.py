"""Metrics of a model, from scores on the server's own test set and on the clients' data."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from steelyard.metrics.fairness import fairness
from steelyard.metrics.regression import client_mse_summary
from steelyard.metrics.scores import Scores
from steelyard.sites import ServerTestSet
from steelyard.types import ClientId, Message

ByClient = Mapping[ClientId, Mapping[str, Scores]]


@dataclass(frozen=True)
class Evaluation:
    """How good a model is: metrics of the round, and one number for each client."""

    metrics: Mapping[str, float]
    measure: str = "accuracy"
    """What the number of a client is: "accuracy", or "mse" in regression."""
    clients: Mapping[ClientId, float] | None = None


def evaluate(
    model: Message, test: ServerTestSet | None, answers: ByClient, num_examples: Mapping[ClientId, int]
) -> Evaluation:
    """All metrics of a model. `num_examples` are the clients' training examples."""
    answers = dict(sorted(answers.items()))  # sums must not depend on who answered first
    metrics: dict[str, float] = {}
    common = None if test is None else test.scores(model)
    if common is not None:
        metrics |= _test_metrics(common)
    own = {client: scores["test"] for client, scores in answers.items() if "test" in scores}
    known = common or next(iter(own.values()), None)
    regression = known is not None and known.is_regression
    by_client = {client: (scores.mse if regression else scores.accuracy) for client, scores in own.items()}
    metrics |= _private_metrics(answers)
    if by_client:
        values = torch.tensor(list(by_client.values()), dtype=torch.float64)
        sizes = torch.tensor([num_examples.get(client, 0) for client in by_client], dtype=torch.float64)
        metrics |= client_mse_summary(values) if regression else fairness(values, sizes)
        metrics |= _pooled_metrics(own)
    held_out = [scores["held_out"] for scores in answers.values() if "held_out" in scores]
    if held_out:
        metrics["temperature"] = temperature = merged_temperature(held_out)
        if test is not None:
            metrics |= _calibration(test.scores(model, temperature), "_scaled")
    return Evaluation(metrics, "mse" if regression else "accuracy", by_client)


def progress(metrics: Mapping[str, float]) -> float | None:
    """The score that `patience` watches, larger is better: on the test set, or else on the clients' own."""
    for name, sign in (("accuracy", 1), ("mse", -1), ("client_accuracy", 1), ("client_mse", -1)):
        if name in metrics:
            return sign * metrics[name]
    return None


def merged_temperature(held_out: list[Scores]) -> float:
    """The geometric mean of the clients' temperatures, weighted by their examples: 2 and 1/2 make 1."""
    counts = [scores.num_examples for scores in held_out]
    logs = [count * scores.log_temperature for count, scores in zip(counts, held_out, strict=True)]
    return math.exp(math.fsum(logs) / sum(counts))


def _test_metrics(scores: Scores) -> dict[str, float]:
    if scores.is_regression:
        return {"mse": scores.mse, "r2": scores.r2}
    return {"accuracy": scores.accuracy, **_calibration(scores)}


def _calibration(scores: Scores, suffix: str = "") -> dict[str, float]:
    return {f"nll{suffix}": scores.nll, f"ece{suffix}": scores.bins.ece, f"brier{suffix}": scores.brier}


def _pooled_metrics(own: Mapping[ClientId, Scores]) -> dict[str, float]:
    """Calibration over the test examples of all clients together, where they sent details."""
    detailed = [scores for scores in own.values() if not scores.is_regression and scores.has_detail]
    if not detailed:
        return {}
    pooled = Scores(np.sum([scores.values for scores in detailed], axis=0), detailed[0].classes)
    return {f"client_{name}": value for name, value in _calibration(pooled).items()}


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
