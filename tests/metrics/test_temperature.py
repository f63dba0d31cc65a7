"""The fitted temperature is optimal for any predictions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor

from steelyard.metrics import fit_temperature, merge_temperatures, nll, scaled
from steelyard.metrics.temperature import COLDEST, HOTTEST


def draw(seed: int, heat: float, count: int = 400, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Logits, and targets drawn from them at another temperature: the one that should be found."""
    random = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, classes, generator=random, dtype=torch.float64)
    return logits, torch.multinomial((logits / heat).softmax(1), 1, generator=random).squeeze(1)


def posterior(predicted: Tensor, targets: Tensor, temperature: float) -> float:
    """Minus its logarithm, up to a constant: the prior of log T is N(0, 0.5²)."""
    return len(targets) * nll(scaled(predicted, temperature), targets) + 2 * math.log(temperature) ** 2


def by_scipy(predicted: Tensor, targets: Tensor) -> float:
    def loss(log_temperature: float) -> float:
        return posterior(predicted, targets, math.exp(log_temperature))

    bounds = (math.log(COLDEST), math.log(HOTTEST))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x)


@pytest.mark.parametrize("heat", [0.3, 1.0, 1.7, 6.0])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_scipy_finds_and_near_what_the_targets_were_drawn_at(seed: int, heat: float) -> None:
    logits, targets = draw(seed, heat, count=4000)
    found = fit_temperature(logits.log_softmax(1), targets)
    assert found == pytest.approx(by_scipy(logits, targets), rel=1e-5)
    assert found == pytest.approx(heat, rel=0.15)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 5), st.floats(-3, 4))
def test_a_few_examples_of_any_scale_have_the_best_temperature(
    seed: int, count: int, classes: int, log_scale: float
) -> None:
    random = torch.Generator().manual_seed(seed)
    predicted = (math.exp(log_scale) * torch.randn(count, classes, generator=random)).log_softmax(1).double()
    targets = torch.randint(0, classes, (count,), generator=random)
    found = fit_temperature(predicted, targets)
    assert COLDEST <= found <= HOTTEST
    best = posterior(predicted, targets, found)
    for other in (0.999 * found, 1.001 * found, 1.0):
        inside = min(max(other, COLDEST), HOTTEST)
        assert best <= posterior(predicted, targets, inside) + 1e-9


def test_logits_and_log_probabilities_are_the_same() -> None:
    logits, targets = draw(5, 1.7)
    shifted = logits + torch.linspace(-9, 9, len(logits), dtype=torch.float64).unsqueeze(1)
    wanted = fit_temperature(logits.log_softmax(1), targets)
    assert fit_temperature(logits, targets) == pytest.approx(wanted, rel=1e-9)
    assert fit_temperature(shifted, targets) == pytest.approx(wanted, rel=1e-9)
    torch.testing.assert_close(scaled(logits.log_softmax(1), 2.5), (logits / 2.5).log_softmax(1))


def test_scaled_predictions_are_normalised_and_ask_for_no_other_temperature() -> None:
    logits, targets = draw(6, 3.0)
    predicted = logits.log_softmax(1)
    better = scaled(predicted, fit_temperature(predicted, targets))
    torch.testing.assert_close(better.exp().sum(1), torch.ones(len(better), dtype=torch.float64))
    assert torch.equal(better.argmax(1), predicted.argmax(1)), "the answers stay"
    assert fit_temperature(better, targets) == pytest.approx(1, abs=0.05)
    assert nll(better, targets) < nll(predicted, targets) - 0.1
    assert scaled(predicted.float(), 2.0).dtype == torch.float64


SURE = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]).log()


@pytest.mark.parametrize(
    ("predicted", "targets", "wanted"),
    [
        (torch.full((4, 3), 1 / 3).log(), [0, 1, 2, 0], 1.0),
        (torch.zeros(0, 3), [], 1.0),
        (torch.zeros(3, 1), [0, 0, 0], 1.0),
        (torch.tensor([[0.0, -torch.inf]] * 3), [0, 0, 0], 1.0),  # certain at any temperature
        (torch.tensor([[0.0, -torch.inf]] * 3), [0, 0, 1], HOTTEST),
        (torch.full((3, 2), torch.nan), [0, 1, 0], 1.0),
        (1e6 * SURE, [0, 0, 0], HOTTEST),
    ],
)
def test_degenerate_cases(predicted: Tensor, targets: list[int], wanted: float) -> None:
    assert fit_temperature(predicted, torch.tensor(targets, dtype=torch.int64)) == pytest.approx(
        wanted, rel=1e-8
    )


@pytest.mark.parametrize("targets", [[0, 1, 0], [1, 0, 1]], ids=["all right", "all wrong"])
def test_a_few_examples_do_not_ask_for_an_extreme(targets: list[int]) -> None:
    few = torch.tensor(targets)
    found = fit_temperature(SURE, few)
    assert found == pytest.approx(by_scipy(SURE, few), rel=1e-5)
    assert 0.5 < found < 2
    many = fit_temperature(SURE.repeat(10_000, 1), few.repeat(10_000))
    assert abs(math.log(many)) > 2, "many examples do"


def test_of_two_maxima_the_one_nearer_to_one_is_taken() -> None:
    """The coldest T is a local maximum, too: predictions that are almost uniform are all correct."""
    predicted = 0.015 * torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = predicted.argmax(1)
    assert posterior(predicted, targets, COLDEST) < posterior(predicted, targets, 1.1 * COLDEST)
    found = fit_temperature(predicted, targets)
    assert 0.5 < found < 1
    for other in (0.99 * found, 1.01 * found):
        assert posterior(predicted, targets, found) < posterior(predicted, targets, other)


def test_rows_with_a_nan_are_ignored() -> None:
    logits, targets = draw(7, 1.7)
    holed = torch.cat([logits, torch.full((1, 5), torch.nan)])
    more = torch.cat([targets, targets[:1]])
    assert fit_temperature(holed, more) == fit_temperature(logits, targets)


def test_merging_is_the_weighted_mean_of_the_logarithms() -> None:
    assert merge_temperatures([2.0, 0.5], [1, 1]) == pytest.approx(1)
    assert merge_temperatures([2.0, 0.5], [30, 10]) == pytest.approx(math.exp(0.5 * math.log(2)))
    assert merge_temperatures([3.0], [7]) == pytest.approx(3)
