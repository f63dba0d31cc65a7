"""What a model is worth: the numbers of scikit-learn, and of a pencil."""

import math

import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss
from torch import nn

from steelyard.client.evaluation import BATCH, predict
from steelyard.data.examples import examples
from steelyard.metrics import accuracy, fairness, nll, worst

RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(300, 5, generator=RANDOM)
TARGETS = torch.randint(0, 4, (300,), generator=RANDOM)


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.Linear(16, 4))


# Accuracy and likelihood


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_accuracy_and_nll_are_those_of_scikit_learn(dtype: torch.dtype) -> None:
    log_probabilities = (
        3 * torch.randn(300, 4, generator=torch.Generator().manual_seed(1), dtype=dtype)
    ).log_softmax(1)
    probabilities = log_probabilities.double().softmax(1).numpy()
    predicted = log_probabilities.argmax(1)
    assert accuracy(log_probabilities, TARGETS) == pytest.approx(
        accuracy_score(TARGETS, predicted), abs=1e-12
    )
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    assert nll(log_probabilities, TARGETS) == pytest.approx(
        log_loss(TARGETS.numpy(), probabilities, labels=range(4)), rel=tolerance
    )


def test_a_large_test_set_is_summed_in_float64() -> None:
    count = 3_000_000
    assert nll(torch.full((count, 1), -0.1), torch.zeros(count, dtype=torch.int64)) == pytest.approx(
        float(torch.tensor(0.1).double()), rel=1e-9
    )


# Fairness


def test_fairness_as_computed_by_hand() -> None:
    accuracies = torch.tensor([0.9, 0.5, 0.7, 0.5], dtype=torch.float64)
    numbers = fairness(accuracies, torch.tensor([10, 20, 30, 40]))
    assert numbers == pytest.approx(
        {
            "client_accuracy": 0.65,
            "client_accuracy_weighted": (9 + 10 + 21 + 20) / 100,
            "client_accuracy_sd": math.sqrt((0.25**2 + 0.15**2 + 0.05**2 + 0.15**2) / 4),
            "client_accuracy_worst10": 0.5,
            "client_accuracy_min": 0.5,
            "client_accuracy_max": 0.9,
        }
    )


@pytest.mark.parametrize(
    ("count", "taken"), [(1, 1), (2, 1), (9, 1), (10, 1), (19, 1), (20, 2), (30, 3), (70, 7), (100, 10)]
)
def test_the_worst_tenth_takes_whole_clients_and_at_least_one(count: int, taken: int) -> None:
    accuracies = torch.arange(count, dtype=torch.float64).flip(0)
    assert worst(accuracies, 0.1) == sum(range(taken)) / taken


def test_a_share_that_is_a_whole_number_of_clients_is_not_lost_to_rounding() -> None:
    assert 0.29 * 100 < 29
    assert worst(torch.arange(100, dtype=torch.float64), 0.29) == sum(range(29)) / 29


def test_one_client_has_no_spread() -> None:
    numbers = fairness(torch.tensor([0.25], dtype=torch.float64), torch.tensor([7]))
    assert numbers.pop("client_accuracy_sd") == 0
    assert set(numbers.values()) == {0.25}


# Predictions


def test_predictions_are_log_probabilities_of_every_row_in_order() -> None:
    model = classifier()
    data = examples(INPUTS, TARGETS)
    assert len(data) > BATCH, "more than one batch"
    found = predict(model, data)
    with torch.no_grad():
        expected = model.eval()(INPUTS).log_softmax(1)
    torch.testing.assert_close(found, expected)
    rows = torch.tensor([7, 3, 299])
    torch.testing.assert_close(predict(model, data.take(rows)), expected[rows])


def test_predicting_is_deterministic_and_leaves_no_gradient() -> None:
    model = classifier().train()  # with dropout
    before = torch.get_rng_state()
    first, second = (predict(model.train(), examples(INPUTS, TARGETS)) for _ in range(2))
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_from_the_start_of_a_batch_are_predicted_to_the_same_bits() -> None:
    torch.manual_seed(0)
    data, model = examples(torch.randn(3 * BATCH + 7, 5), torch.zeros(3 * BATCH + 7)), classifier()
    whole = predict(model, data)
    parts = [predict(model, data, rows=part) for part in (slice(0, BATCH), slice(BATCH, None))]
    assert torch.equal(torch.cat(parts), whole)
