"""Scores of one model on the common test set and on every client's own."""

import statistics
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.data.clients import Client, Part
from steelyard.data.examples import AnyExamples, Examples, share_a_table
from steelyard.metrics.accuracy import accuracy, accuracy_by_mix, balanced_accuracy
from steelyard.metrics.calibration import calibration_scores
from steelyard.metrics.fairness import fairness
from steelyard.metrics.regression import client_mse_summary, r2, squared_errors
from steelyard.metrics.temperature import common_temperature, scaled
from steelyard.types import ClientId


class Predict(Protocol):
    """Predictions on a client's own test data or on what it holds out, or on the common test set (None)."""

    def __call__(self, client: ClientId | None, part: Part = "test", /) -> Tensor: ...


class Scorer:
    """Where a client's test rows are rows of the common test set, its predictions are not made twice."""

    def __init__(self, clients: Sequence[Client], test: AnyExamples | None, personal: bool = False) -> None:
        """Where models are `personal`, each client's own is looked at."""
        self.test, self.personal = test, personal
        self.apart: dict[ClientId, AnyExamples] = {}
        inside: dict[ClientId, Tensor] = {}
        place = _places(test)
        for client in clients:
            if client.test is None or len(client.test) == 0:
                continue
            known = share_a_table(client.test, test) and not personal
            positions = place[client.test.rows] if known else None
            if positions is None or bool((positions < 0).any()):
                self.apart[client.id] = client.test
            else:
                inside[client.id] = positions
        self.inside = list(inside)
        self.positions = torch.cat([torch.zeros(0, dtype=torch.int64), *inside.values()])
        self.counts = torch.tensor([len(positions) for positions in inside.values()], dtype=torch.int64)
        self.sizes = {client.id: len(client.train) for client in clients}
        self.mix = {client.id: torch.bincount(client.train.labels) for client in clients} if personal else {}
        self.held_out = {client.id: client.held_out for client in clients if client.held_out}

    @cached_property
    def measure(self) -> str:
        """What the clients' own scores are: "accuracy", or "mse" where the targets are numbers."""
        sets = (self.test, *self.apart.values(), *self.held_out.values())
        data = next((each for each in sets if each is not None), None)
        return "mse" if data is not None and data.labels.is_floating_point() else "accuracy"

    def score(
        self, predict: Predict, shared: Predict | None = None
    ) -> tuple[dict[str, float], dict[ClientId, float]]:
        """Numbers for the round, and the accuracy, or `measure`, of each client that has test data.

        `shared` predicts, on a client's data, with what is shared in the place of the client's own.
        """
        metrics: dict[str, float] = {}
        by_client: dict[ClientId, float] = {}
        if self.test is not None and not self.personal:
            predicted, labels = predict(None), self.test.labels
            each = self._each(predicted, labels)
            metrics[self.measure] = float(each.double().mean())
            metrics |= (
                {"r2": r2(each, labels)} if self.measure == "mse" else calibration_scores(predicted, labels)
            )
            by_client |= self._inside(each)
        mine = {client: predict(client) for client in self.apart}
        for client, data in self.apart.items():
            by_client[client] = float(self._each(mine[client], data.labels).double().mean())
        if shared is not None and self.measure == "accuracy":
            metrics |= self._personal(mine, predict, shared)
        if by_client:
            values = torch.tensor(list(by_client.values()), dtype=torch.float64)
            sizes = torch.tensor([self.sizes[client] for client in by_client], dtype=torch.float64)
            metrics |= client_mse_summary(values) if self.measure == "mse" else fairness(values, sizes)
        if self.held_out and self.measure == "accuracy":
            metrics["temperature"] = temperature = common_temperature(
                (predict(client, "held_out"), data.labels) for client, data in self.held_out.items()
            )
            if self.test is not None and not self.personal:
                metrics |= calibration_scores(scaled(predicted, temperature), labels, "_scaled")
        return metrics, by_client

    def _personal(
        self, mine: Mapping[ClientId, Tensor], predict: Predict, shared: Predict
    ) -> dict[str, float]:
        """Means over clients with models of their own: on the common test set, by class, and of what they
        share."""
        names = ("accuracy", "client_accuracy_balanced", "client_accuracy_own_mix", "shared_accuracy")
        found: dict[str, list[float]] = {name: [] for name in names}
        if self.test is not None:
            labels = self.test.labels
            found["accuracy"] += [accuracy(predict(client, "common"), labels) for client in self.sizes]
        for client, data in self.apart.items():
            own, labels = mine[client], data.labels
            found["client_accuracy_balanced"].append(balanced_accuracy(own, labels))
            found["client_accuracy_own_mix"].append(accuracy_by_mix(own, labels, self.mix[client]))
            found["shared_accuracy"].append(accuracy(shared(client), labels))
        return {name: statistics.fmean(values) for name, values in found.items() if values}

    def _each(self, predicted: Tensor, labels: Tensor) -> Tensor:
        """The squared error of each example, or whether it is right (1) or not (0)."""
        if self.measure == "mse":
            return squared_errors(predicted, labels)
        return (predicted.argmax(dim=1) == labels).int()

    def _inside(self, each: Tensor) -> dict[ClientId, float]:
        """The means of the clients inside, all at once: there may be very many."""
        so_far = F.pad(each.index_select(0, self.positions).cumsum(0), (1, 0))
        stops = self.counts.cumsum(0)
        sums = so_far[stops] - so_far[stops - self.counts]
        return dict(zip(self.inside, (sums.double() / self.counts).tolist(), strict=True))


def _places(test: AnyExamples | None) -> Tensor:
    """Where each row of the table stands in the common test set; -1 for those that do not."""
    if not isinstance(test, Examples):
        return torch.zeros(0, dtype=torch.int64)
    place = torch.full((len(test.inputs),), -1)
    place[test.rows] = torch.arange(len(test))
    return place
