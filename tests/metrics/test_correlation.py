"""Whether what a rule says of the clients goes with how well they are served."""

import math
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

import steelyard as sy
from steelyard.metrics import rank_correlations, spearman
from steelyard.server.result import Result
from steelyard.server.rows import correlation_metrics

NAMES = ("weight_accuracy_spearman", "reliability_accuracy_spearman")


def wide(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("levels", [3, 6, 1000])
@pytest.mark.parametrize("seed", range(8))
def test_the_correlation_is_that_of_scipy_with_and_without_ties(seed: int, levels: int) -> None:
    random = torch.Generator().manual_seed(seed)
    first, second = torch.randint(0, levels, (2, 15), generator=random).double()
    second += 0.5 * first
    wanted = float(spearmanr(first.numpy(), second.numpy()).statistic)
    assert spearman(first, second) == pytest.approx(wanted, abs=1e-6)


def test_the_correlation_by_hand() -> None:
    # Ranks 1, 2.5, 2.5, 4 and 2, 1, 3, 4: differences from 2.5: −1.5, 0, 0, 1.5 and −.5, −1.5, .5, 1.5.
    # Products .75 + 2.25 = 3, squares 4.5 and 5: 3/√22.5.
    assert spearman(wide(-7, 0, 0, 9), wide(0.2, 0.1, 0.3, 0.9)) == pytest.approx(3 / math.sqrt(22.5))


def test_only_the_order_matters() -> None:
    values = wide(0.3, 0.1, 0.7, 0.2)
    assert spearman(values, values.exp() * 1e6) == pytest.approx(1)
    assert spearman(values, 1 / values) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("first", "second"),
    [((), ()), ((1,), (1,)), ((1, 2), (1, 2)), ((1, 1, 1), (1, 2, 3)), ((1, 2, 3), (5, 5, 5))],
)
def test_of_two_clients_or_of_what_is_the_same_for_all_there_is_no_correlation(
    first: tuple[float, ...], second: tuple[float, ...]
) -> None:
    assert spearman(wide(*first), wide(*second)) is None
    assert rank_correlations({"weight": wide(*first)}, wide(*second)) == {}


def test_clients_without_an_accuracy_are_left_out() -> None:
    accuracy = wide(0.1, math.nan, 0.5, 0.9, math.nan)
    found = rank_correlations({"weight": wide(1, 99, 2, 3, -99), "trust": wide(3, 0, 2, 1, 0)}, accuracy)
    assert found == {"weight_accuracy_spearman": 1.0, "trust_accuracy_spearman": -1.0}
    assert rank_correlations({"weight": wide(1, 2, 3)}, wide(0.1, math.nan, 0.5)) == {}, "two are left"


def rows(**evidence: tuple[float, ...]) -> list[dict[str, Any]]:
    columns = {"weight": (0.1, 0.2, 0.3, 0.4), **evidence}
    return [
        {"client": client, "status": "used", **{name: values[place] for name, values in columns.items()}}
        for place, client in enumerate("abcd")
    ]


def test_of_a_round_weight_and_reliability_are_looked_at() -> None:
    scores = {"d": 0.4, "c": 0.3, "a": 0.1, "not invited": 0.0}  # b was not tested
    assert correlation_metrics(rows(trust=(1, 2, 3, 4)), scores) == {NAMES[0]: pytest.approx(1)}
    both = correlation_metrics(rows(reliability=(4, 9, 3, 1)), scores)
    assert both == {NAMES[0]: pytest.approx(1), NAMES[1]: pytest.approx(-1)}
    assert correlation_metrics(rows(reliability=(1, 1, 1, 1)), scores).keys() == {NAMES[0]}


def test_a_client_whose_reply_was_not_used_does_not_count() -> None:
    scores = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
    others = [
        {**row, "status": "sent no reply", "weight": 0.0} if row["client"] == "d" else row for row in rows()
    ]
    assert correlation_metrics(others, scores) == {NAMES[0]: pytest.approx(1)}


def test_a_skipped_round_and_one_without_scores_have_none() -> None:
    skipped = [{**row, "status": "not used", "weight": 0.0} for row in rows()]
    assert correlation_metrics(skipped, {"a": 0.1, "b": 0.2, "c": 0.3}) == {}
    assert correlation_metrics(rows(), {}) == {}


def run(**settings: Any) -> Result:
    small = {"data.clients": 6, "data.partition": {"name": "dirichlet", "alpha": 0.3}, "training.steps": 3}
    return sy.run(out=None, rounds=4, **{**small, **settings})


def test_a_run_with_consensus_says_how_weight_and_reliability_go_with_accuracy() -> None:
    result = run(weighing="consensus", **{"weighing.gate": "soft"})
    assert NAMES[1] not in result.history[0], "in the first round everyone is as reliable"
    assert {*NAMES} <= result.history[-1].keys()
    for row in result.history[2:]:
        rows = [each for each in result.clients if each["round"] == row["round"]]
        for name in NAMES:
            found = [(each[name.partition("_")[0]], each["accuracy"]) for each in rows]
            assert row[name] == pytest.approx(spearmanr(found).statistic)


def test_where_there_is_an_evaluation_the_weights_of_any_rule_are_looked_at() -> None:
    result = run(weighing="samples", evaluate_every=3)
    found = [{*NAMES} & row.keys() for row in result.history]
    assert found == [set(), set(), {NAMES[0]}, {NAMES[0]}]


def test_regression_has_no_accuracy_to_go_with() -> None:
    result = run(
        weighing="consensus",
        model={"name": "linear", "bias": False},
        objective="squared-error",
        **{
            "data.dataset": {"name": "synthetic-linear", "features": 5, "rows": 30},
            "data.partition": "natural",
            "data.clients": 5,
        },
    )
    assert "client_mse" in result.history[-1]
    assert not [name for row in result.history for name in row if "spearman" in name]
