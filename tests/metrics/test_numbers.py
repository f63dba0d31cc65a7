"""What predicted numbers are worth: the numbers of scikit-learn."""

import math

import pytest
import torch
from sklearn.metrics import mean_squared_error, r2_score
from torch import nn

from steelyard.client.evaluation import predict
from steelyard.data.examples import Examples
from steelyard.metrics.regression import client_error_summary
from steelyard.metrics.scores import score

RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(300, 5, generator=RANDOM)
TARGETS = INPUTS.sum(1) + torch.randn(300, generator=RANDOM)
COMMON = Examples(INPUTS, TARGETS, torch.arange(300))


def regressor() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(5, 1)


def test_predictions_of_numbers_are_what_the_model_puts_out() -> None:
    model = regressor()
    with torch.no_grad():
        torch.testing.assert_close(predict(model, COMMON), model(INPUTS))


def test_errors_are_those_of_scikit_learn() -> None:
    predicted = predict(regressor(), COMMON)
    scores = score(predicted, TARGETS)
    assert scores.mse == pytest.approx(mean_squared_error(TARGETS, predicted.squeeze(1)), rel=1e-6)
    assert scores.r2 == pytest.approx(r2_score(TARGETS, predicted.squeeze(1)), rel=1e-6)
    assert math.isnan(score(torch.zeros(3, 1), torch.ones(3)).r2), "nothing is to be explained"


def test_the_worst_clients_are_those_with_the_largest_errors() -> None:
    assert client_error_summary(torch.tensor([0.1, 0.5, 0.2, 0.4], dtype=torch.float64)) == pytest.approx(
        {
            "client_mse": 0.3,
            "client_mse_sd": math.sqrt((0.2**2 + 0.2**2 + 0.1**2 + 0.1**2) / 4),
            "client_mse_worst10": 0.5,
            "client_mse_min": 0.1,
            "client_mse_max": 0.5,
        }
    )
