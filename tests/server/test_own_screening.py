"""Sums of own metrics that clients send: honest ones pass, and one client cannot set a metric by lying."""

import math
from typing import Any

import numpy as np
import pytest
from torchmetrics import MeanSquaredError
from torchmetrics.classification import MulticlassF1Score

from steelyard.metrics.own import OwnMetrics
from steelyard.metrics.scores import Scores
from steelyard.server.own_screening import MAX_MEAN_RATIO
from steelyard.server.score_screening import ScoreRules, screen_scores
from steelyard.server.scoring import pooled_scores

METRICS = OwnMetrics({"f1": MulticlassF1Score(3, average="micro"), "mean": lambda outputs, targets: 0.0})
RULES = ScoreRules(3, own=METRICS, max_examples=1000)
HONEST = [8.0, 2.0, 18.0, 2.0, 5.0, 10.0]  # true and false positives, true and false negatives; total, count
TOO_MANY = "sent counts of the own metric {!r} that its examples cannot have"
ENDLESS = "sent sums of the own metric {!r} that are not finite"


def scores(own: list[float], count: float = 10.0) -> Scores:
    return Scores(np.array([count, 5.0, 10.0, 5.0, 0.0]), 3, own=np.array(own, float))


def screened(bad: list[float], data: str = "test", rules: ScoreRules = RULES) -> tuple[dict[str, float], str]:
    """The metrics over five honest clients and one with these sums, and why its sums were dropped."""
    sent: Any = {f"honest-{number}": {data: scores(HONEST)} for number in range(5)}
    sent["bad"] = {data: scores(bad)}
    found, dropped = screen_scores(sent, list(sent), None, rules)
    assert set(found) == set(sent)
    assert set(dropped) <= {"bad"}
    assert found["bad"][data].values.tolist() == sent["bad"][data].values.tolist()
    pooled = pooled_scores([each[data] for each in found.values()])
    assert pooled is not None
    return METRICS.compute(pooled.own), dropped.get("bad", "")


@pytest.mark.parametrize("data", ["test", "held_out"])
@pytest.mark.parametrize(
    ("own", "metric", "reason"),
    [
        ([0, 2**53, 0, 2**53, 5, 10], "f1", TOO_MANY),
        ([0, 91, 0, 0, 5, 10], "f1", TOO_MANY),  # 10 examples of 3 classes
        ([-1, 2, 18, 2, 5, 10], "f1", TOO_MANY),
        ([7.5, 2, 18, 2, 5, 10], "f1", TOO_MANY),
        ([math.nan, 2, 18, 2, 5, 10], "f1", ENDLESS),
        ([8, 2, 18, 2, math.inf, 10], "mean", ENDLESS),
        ([8, 2, 18, 2, math.nan, 10], "mean", ENDLESS),
        ([8, 2, 18, 2, 1e61, 10], "mean", ENDLESS),
        ([8, 2, 18, 2, 5, 2**53], "mean", TOO_MANY),
        ([8, 2, 18, 2, 5, 11], "mean", TOO_MANY),
        ([8, 2, 18, 2, -1e60, 1], "mean", "sent sums of the own metric {!r} of 1e+60 an example; beside"),
        ([8, 2, 18, 2, 1001, 10], "mean", "sent sums of the own metric {!r} of 100 an example; beside"),
        ([8, 2, 18, 2, 101, 0], "mean", "sent sums of the own metric {!r} of 101 an example; beside"),
    ],
)
def test_sums_that_cannot_be_are_dropped_and_the_other_scores_stay(
    own: list[float], metric: str, reason: str, data: str
) -> None:
    found, said = screened(own, data)
    assert said.startswith(reason.format(metric))
    assert found == pytest.approx({"f1": 0.8, "mean": 0.5})


@pytest.mark.parametrize("total", [0.0, 10.0, -10.0, 10 * MAX_MEAN_RATIO])
def test_means_within_what_others_have_pass(total: float) -> None:
    found, said = screened([8, 2, 18, 2, total, 10])
    assert said == ""
    assert found["mean"] == pytest.approx((25 + total) / 60)


def test_one_client_moves_a_mean_no_further_than_its_share_of_a_hundred_medians() -> None:
    for total in np.logspace(0, 300, 61):
        assert abs(screened([8, 2, 18, 2, -total, 10])[0]["mean"]) <= MAX_MEAN_RATIO / 6


@pytest.mark.parametrize("size", [0, 5, 12])
def test_another_number_of_sums_is_dropped(size: int) -> None:
    found, said = screened([1.0] * size)
    assert said == f"sent {size} sums of own metrics, not 6"
    assert found == pytest.approx({"f1": 0.8, "mean": 0.5})


def test_own_sums_that_were_not_asked_for_are_dropped() -> None:
    found, dropped = screen_scores({"a": {"test": scores([1.0])}}, ["a"], None, ScoreRules(3))
    assert len(found["a"]["test"].own) == 0
    assert dropped == {"a": "sent 1 sums of own metrics, not 0"}


def test_what_most_do_not_have_may_be_sent_by_one() -> None:
    rare: Any = {
        name: {"test": scores([8, 2, 18, 2, total, 10])}
        for name, total in zip("abcd", (0.0, 0.0, 0.0, 9.0), strict=True)
    }
    assert screen_scores(rare, "abcd", None, RULES)[1] == {}


def test_two_clients_show_no_usual_value() -> None:
    two: Any = {name: {"test": scores([8, 2, 18, 2, total, 10])} for name, total in (("a", 5.0), ("b", 5e9))}
    assert screen_scores(two, "ab", None, RULES)[1] == {}


def test_if_no_client_has_usable_sums_the_metric_has_no_value() -> None:
    sent: Any = {name: {"test": scores([8, 2, 18, 2, math.nan, 10])} for name in "abc"}
    found, dropped = screen_scores(sent, "abc", None, RULES)
    assert set(dropped) == {"a", "b", "c"}
    pooled = pooled_scores([each["test"] for each in found.values()])
    assert pooled is not None
    assert METRICS.compute(pooled.own) == pytest.approx({"f1": 0.8, "mean": math.nan}, nan_ok=True)


def test_states_of_a_regression_may_be_sums_of_squares() -> None:
    metrics = OwnMetrics({"mean": MeanSquaredError()})

    def dropped(error: float, count: float) -> dict[str, str]:
        own = {name: np.array([20.0, 10.0]) for name in "abc"} | {"bad": np.array([error, count])}
        sent: Any = {
            name: {"test": Scores(np.array([10.0, 20, 1, 5]), 0, own=each)} for name, each in own.items()
        }
        return screen_scores(sent, list(own), None, ScoreRules(own=metrics))[1]

    assert dropped(20e4, 10) == {}
    assert set(dropped(20e5, 10)) == {"bad"}
    assert dropped(20.0, 10 * 784) == {}  # each number of an image
    assert set(dropped(20.0, 1e12)) == {"bad"}


def test_functions_of_tokens_are_averaged_over_examples_that_may_be_more_than_the_tokens() -> None:
    rules = ScoreRules(None, own=METRICS, max_examples=1000)
    for count, said in ((40, ""), (1000, ""), (1001, TOO_MANY.format("mean"))):
        assert screened([8, 2, 18, 2, 5, count], rules=rules)[1] == said
