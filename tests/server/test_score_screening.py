"""Scores of honest clients pass; scores that cannot be true are dropped with the reason."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from steelyard.metrics.scores import Scores, score
from steelyard.server.score_screening import (
    IMPOSSIBLE,
    NOT_FINITE,
    ScoreRules,
    screen_scores,
    screen_table,
)
from steelyard.sites import ScoreTable

CLIENTS = ("a", "b", "c")


def honest(classes: int, detail: bool = False, count: int = 40, scale: float = 3.0, seed: int = 0) -> Scores:
    draw = torch.Generator().manual_seed(seed)
    if classes == 0:
        return score(torch.randn(count, 1, generator=draw), torch.randn(count, generator=draw))
    logits = scale * torch.randn(count, classes, generator=draw)
    return score(logits.log_softmax(1), torch.randint(classes, (count,), generator=draw), detail)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e30])
@pytest.mark.parametrize(("classes", "detail"), [(0, False), (2, False), (3, True), (101, True)])
def test_honest_scores_pass_whatever_the_model_predicts(
    classes: int, detail: bool, scale: float, known: bool
) -> None:
    rules = ScoreRules(classes if known else None, detail)
    sent = {name: {"test": honest(classes, detail, 7, scale, seed)} for seed, name in enumerate(CLIENTS)}
    found, dropped = screen_scores(sent, CLIENTS, None, rules)
    assert dropped == {}
    assert found == sent


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, 41.0, IMPOSSIBLE),  # more examples than in the bins
        (5, -1.0, IMPOSSIBLE),
        (5, 1e6, IMPOSSIBLE),
        (25, 1e6, IMPOSSIBLE),  # more confidence than examples
        (40, 1e6, IMPOSSIBLE),  # more right answers than examples
        (50, -1.0, IMPOSSIBLE),
        (58, 1e6, IMPOSSIBLE),  # the confusion matrix has more examples
        (58, math.nan, NOT_FINITE),
        (20, math.inf, NOT_FINITE),
    ],
)
def test_details_that_cannot_be_true_are_dropped(place: int, value: float, reason: str) -> None:
    bad = honest(3, detail=True)
    bad.values[place] = value
    sent = {"a": {"test": bad}, "b": {"test": honest(3, detail=True, seed=1)}}
    found, dropped = screen_scores(sent, CLIENTS, None, ScoreRules(3, detail=True))
    assert dropped == {"a": reason}
    assert set(found) == {"b"}


@pytest.mark.parametrize(
    ("place", "value"), [(0, 0.0), (1, -1.0), (3, -1.0), (1, 1e61), (2, -1e61), (1, math.nan)]
)
def test_errors_of_a_regression_that_cannot_be_true_are_dropped(place: int, value: float) -> None:
    bad = honest(0)
    bad.values[place] = value
    assert screen_scores({"a": {"test": bad}}, CLIENTS, None, ScoreRules(0))[0] == {}


def test_scores_of_private_models_need_private_models_and_their_test_data() -> None:
    plain, mix = honest(3), Scores(np.array([1.0, 0.7, 0.0, 0.0, 0.0]), 3)
    for scores, private, usable in (
        ({"test": plain, "own_mix": mix, "shared": plain, "common": plain}, True, True),
        ({"test": plain, "own_mix": mix}, False, False),
        ({"own_mix": mix}, True, False),
        ({"common": plain}, True, True),
    ):
        found, dropped = screen_scores({"a": scores}, CLIENTS, None, ScoreRules(3, private=private))
        assert bool(found) == usable
        assert bool(dropped) != usable


def test_without_a_known_number_of_classes_the_majority_decides() -> None:
    sent: Any = {"a": {"test": honest(3)}, "b": {"test": honest(3)}, "c": {"test": honest(4)}}
    found, dropped = screen_scores(sent, CLIENTS, None, ScoreRules())
    assert set(found) == {"a", "b"}
    assert dropped == {"c": "sent scores of 4 classes, not 3"}


def test_rows_of_a_table_that_cannot_be_true_are_dropped() -> None:
    values = np.stack([honest(3, seed=seed).values for seed in range(4)])
    values[1, 2] = math.nan
    table = ScoreTable(["a", "b", "c", "d"], values, 3)
    found, dropped = screen_table([table], {"a", "b", "c"}, ScoreRules(3))
    assert found is not None
    assert list(found.clients) == ["a", "c"]
    assert found.values.tolist() == values[[0, 2]].tolist()
    assert dropped == {"b": NOT_FINITE}
    whole = ScoreTable(["a", "c"], values[[0, 2]], 3)
    assert screen_table([whole], {"a", "c"}, ScoreRules()) == (whole, {})
    twice = ScoreTable(["a", "a", "c"], values[[0, 0, 2]], 3)
    found, dropped = screen_table([twice], {"a", "c"}, ScoreRules(3))
    assert found is not None
    assert (list(found.clients), set(dropped)) == (["c"], {"a"})


def test_a_client_in_the_table_does_not_score_its_test_data_again() -> None:
    table = ScoreTable(["a"], honest(3).values.reshape(1, -1), 3)
    sent = {"a": {"test": honest(3)}, "b": {"held_out": honest(3)}}
    found, dropped = screen_scores(sent, CLIENTS, table, ScoreRules(3))
    assert set(found) == {"b"}
    assert set(dropped) == {"a"}


@pytest.mark.parametrize("known", [3, None])
@pytest.mark.parametrize("classes", [2**31, 10**4299, 9 * 10**4299, 10**5000], ids=int.bit_length)
def test_a_number_of_classes_with_thousands_of_digits_leaves_a_short_reason(
    classes: int, known: int | None
) -> None:
    sent = {"a": {"test": Scores(np.ones(5), classes)}}
    found, dropped = screen_scores(sent, CLIENTS, None, ScoreRules(known, detail=True))
    assert found == {}
    assert dropped == {"a": "sent scores without a number of classes"}
