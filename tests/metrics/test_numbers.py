"""What predicted numbers are worth: the numbers of scikit-learn."""

import math
from collections.abc import Callable

import pytest
import torch
from sklearn.metrics import mean_squared_error, r2_score
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from steelyard.client.evaluation import predict
from steelyard.client.scoring import Scorer
from steelyard.data.clients import Client
from steelyard.data.examples import AnyExamples, Examples, examples
from steelyard.metrics.regression import client_mse_summary, r2, squared_errors

RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(300, 5, generator=RANDOM)
TARGETS = INPUTS.sum(1) + torch.randn(300, generator=RANDOM)
COMMON = Examples(INPUTS, TARGETS, torch.arange(300))


class Lazy(Dataset[tuple[Tensor, float]]):
    """Targets are plain numbers."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        return INPUTS[index], float(TARGETS[index])


def regressor() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(5, 1)


def predictor(clients: list[Client]) -> Callable[[str | None], Tensor]:
    tests: dict[str | None, AnyExamples] = {client.id: client.test for client in clients if client.test}
    model = regressor()
    return lambda client: predict(model, tests.get(client, COMMON))


def test_predictions_of_numbers_are_what_the_model_puts_out() -> None:
    model = regressor()
    with torch.no_grad():
        torch.testing.assert_close(predict(model, COMMON), model(INPUTS))


def test_errors_are_those_of_scikit_learn() -> None:
    predicted = predict(regressor(), COMMON)
    found = squared_errors(predicted, TARGETS)
    assert found.dtype == torch.float64
    assert float(found.mean()) == pytest.approx(mean_squared_error(TARGETS, predicted.squeeze(1)), rel=1e-6)
    assert r2(found, TARGETS) == pytest.approx(r2_score(TARGETS, predicted.squeeze(1)), rel=1e-6)
    assert math.isnan(r2(torch.zeros(3), torch.ones(3))), "nothing is to be explained"


def test_the_worst_clients_are_those_with_the_largest_errors() -> None:
    assert client_mse_summary(torch.tensor([0.1, 0.5, 0.2, 0.4], dtype=torch.float64)) == pytest.approx(
        {
            "client_mse": 0.3,
            "client_mse_sd": math.sqrt((0.2**2 + 0.2**2 + 0.1**2 + 0.1**2) / 4),
            "client_mse_worst10": 0.5,
            "client_mse_min": 0.1,
            "client_mse_max": 0.5,
        }
    )


def test_clients_inside_and_apart_are_scored_by_their_own_errors() -> None:
    train = examples(INPUTS[:2], TARGETS[:2])
    apart = (INPUTS[:50] + 1, TARGETS[:50].double())
    clients = [
        Client("a", train, COMMON.take(torch.arange(100, 110))),
        Client("b", train, COMMON.take(torch.arange(120).flip(0))),
        Client("c", train, apart),
        Client("d", train, Lazy()),
        Client("e", train),
    ]
    scorer = Scorer(clients, COMMON)
    assert scorer.measure == "mse"
    metrics, by_client = scorer.score(predictor(clients))
    with torch.no_grad():
        outputs = regressor()(INPUTS).squeeze(1)
        shifted = regressor()(apart[0]).squeeze(1)
    assert by_client == pytest.approx(
        {
            "a": mean_squared_error(TARGETS[100:110], outputs[100:110]),
            "b": mean_squared_error(TARGETS[:120], outputs[:120]),
            "c": mean_squared_error(TARGETS[:50], shifted),
            "d": mean_squared_error(TARGETS[:40], outputs[:40]),
        }
    )
    assert metrics["mse"] == pytest.approx(mean_squared_error(TARGETS, outputs))
    assert metrics["client_mse"] == pytest.approx(sum(by_client.values()) / 4)
    assert not {"accuracy", "nll", "client_accuracy"} & metrics.keys()


def test_without_a_common_test_set_the_clients_show_what_is_measured() -> None:
    clients = [Client("a", (INPUTS, TARGETS), TensorDataset(INPUTS[:9], TARGETS[:9]))]
    scorer = Scorer(clients, None)
    metrics, by_client = scorer.score(predictor(clients))
    assert scorer.measure == "mse"
    assert metrics["client_mse"] == by_client["a"]
    assert "mse" not in metrics
    classes = [Client("a", (INPUTS, TARGETS), (INPUTS, (TARGETS > 0).long()))]
    assert Scorer(classes, None).measure == Scorer([], None).measure == "accuracy"
