"""Scores of one model on the common test set and on every client's own."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.data.clients import Client, Part
from steelyard.data.examples import AnyExamples, Examples, share_a_table
from steelyard.evaluation.calibration import honesty
from steelyard.evaluation.fairness import fairness
from steelyard.evaluation.regression import evenness, r2, squared_errors
from steelyard.evaluation.temperature import common_temperature, scaled
from steelyard.types import ClientId


class Predict(Protocol):
    """Predictions on a client's own test data or on what it holds out, or on the common test set (None)."""

    def __call__(self, client: ClientId | None, part: Part = "test", /) -> Tensor: ...


class Scorer:
    """Where a client's test rows are rows of the common test set, its predictions are not made twice."""

    def __init__(self, clients: Sequence[Client], test: AnyExamples | None) -> None:
        self.test = test
        self.apart: dict[ClientId, AnyExamples] = {}
        inside: dict[ClientId, Tensor] = {}
        place = _places(test)
        for client in clients:
            if client.test is None or len(client.test) == 0:
                continue
            positions = place[client.test.rows] if share_a_table(client.test, test) else None
            if positions is None or bool((positions < 0).any()):
                self.apart[client.id] = client.test
            else:
                inside[client.id] = positions
        self.inside = list(inside)
        self.positions = torch.cat([torch.zeros(0, dtype=torch.int64), *inside.values()])
        self.counts = torch.tensor([len(positions) for positions in inside.values()], dtype=torch.int64)
        self.sizes = {client.id: len(client.train) for client in clients}
        self.held_out = {client.id: client.held_out for client in clients if client.held_out}

    @cached_property
    def measure(self) -> str:
        """What the clients' own scores are: "accuracy", or "mse" where the targets are numbers."""
        sets = (self.test, *self.apart.values(), *self.held_out.values())
        data = next((each for each in sets if each is not None), None)
        return "mse" if data is not None and data.labels.is_floating_point() else "accuracy"

    def score(self, predict: Predict) -> tuple[dict[str, float], dict[ClientId, float]]:
        """Numbers for the round, and the accuracy, or `measure`, of each client that has test data."""
        metrics: dict[str, float] = {}
        by_client: dict[ClientId, float] = {}
        if self.test is not None:
            predicted, labels = predict(None), self.test.labels
            each = self._each(predicted, labels)
            metrics[self.measure] = float(each.double().mean())
            metrics |= {"r2": r2(each, labels)} if self.measure == "mse" else honesty(predicted, labels)
            by_client |= self._inside(each)
        for client, data in self.apart.items():
            by_client[client] = float(self._each(predict(client), data.labels).double().mean())
        if by_client:
            values = torch.tensor(list(by_client.values()), dtype=torch.float64)
            sizes = torch.tensor([self.sizes[client] for client in by_client], dtype=torch.float64)
            metrics |= evenness(values) if self.measure == "mse" else fairness(values, sizes)
        if self.held_out and self.measure == "accuracy":
            metrics["temperature"] = temperature = common_temperature(
                (predict(client, "held_out"), data.labels) for client, data in self.held_out.items()
            )
            if self.test is not None:
                metrics |= honesty(scaled(predicted, temperature), labels, "_scaled")
        return metrics, by_client

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
