"""Scores of one model on the common test set and on every client's own."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from steelyard.data.clients import Client
from steelyard.data.examples import AnyExamples, Examples
from steelyard.evaluation.accuracy import accuracy, nll
from steelyard.evaluation.fairness import fairness
from steelyard.types import ClientId

Predict = Callable[[AnyExamples], Tensor]


class Scorer:
    """Where a client's test rows are rows of the common test set, its predictions are not made twice."""

    def __init__(self, clients: Sequence[Client], test: AnyExamples | None) -> None:
        self.test = test
        self.inside: list[ClientId] = []
        self.apart: list[Client] = []
        owners, positions = [], []
        for client in clients:
            if client.test is None or len(client.test) == 0:
                continue
            if (
                isinstance(test, Examples)
                and isinstance(client.test, Examples)
                and client.test.inputs is test.inputs
            ):
                owners.append(torch.full((len(client.test),), len(self.inside)))
                positions.append(client.test.rows)
                self.inside.append(client.id)
            else:
                self.apart.append(client)
        if isinstance(test, Examples) and self.inside:
            place = torch.zeros(len(test.inputs), dtype=torch.int64)
            place[test.rows] = torch.arange(len(test))
            self.owners, self.positions = torch.cat(owners), place[torch.cat(positions)]

    def score(self, predict: Predict) -> tuple[dict[str, float], dict[ClientId, float]]:
        """Numbers for the round, and the accuracy of each client that has test data."""
        metrics: dict[str, float] = {}
        by_client: dict[ClientId, float] = {}
        if self.test is not None:
            predicted, labels = predict(self.test), self.test.labels
            metrics |= {"accuracy": accuracy(predicted, labels), "nll": nll(predicted, labels)}
            if self.inside:
                correct = (predicted.argmax(dim=1) == labels)[self.positions].double()
                counts = torch.bincount(self.owners)
                shares = torch.bincount(self.owners, weights=correct) / counts
                by_client |= dict(zip(self.inside, shares.tolist(), strict=True))
        for client in self.apart:
            assert client.test is not None
            by_client[client.id] = accuracy(predict(client.test), client.test.labels)
        if by_client:
            metrics |= fairness(torch.tensor(list(by_client.values()), dtype=torch.float64))
        return metrics, by_client
