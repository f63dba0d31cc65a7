"""Who sent an answer, the channel says: what a client sends is held against itself only."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scripted_sites import CLASSES, ScriptedSites, ServerTest
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.metrics.scores import Scores
from steelyard.server.federation import Federation
from steelyard.server.result import Result
from steelyard.server.rows import MAX_LOSS_RATIO, mean_loss
from steelyard.sites import Answer, ScoreTable
from steelyard.types import Failure, Message, Reply

HONEST = ("a", "b", "c")


def run(script: Callable[[Answer, int], list[Any]] | None, **settings: Any) -> Result:
    """Three honest clients and "z", which follows the script."""
    torch.manual_seed(0)
    settings = {"test": ServerTest(), "rounds": 2, "classes": CLASSES, **settings}
    return Federation(
        ScriptedSites(HONEST, ["z"], script), Algorithm(), nn.Linear(2, CLASSES), **settings
    ).run()


def statuses(result: Result, number: int) -> dict[str, str]:
    return {str(row["client"]): str(row["status"]) for row in result.clients if row["round"] == number}


def test_a_client_that_was_not_invited_is_rejected_by_name_and_takes_no_place() -> None:
    reply = Reply("z", Message(torch.ones(9)), 10)

    def script(answer: Answer, round: int) -> list[Any]:
        return [answer._replace(reply=reply)]

    result = run(script, clients_per_round=1, rounds=8)
    seen = {number: statuses(result, number) for number in range(1, 8)}
    assert any(rows.get("z") == "was not invited to this round" and len(rows) == 2 for rows in seen.values())
    assert all(rows[client] == "used" for rows in seen.values() for client in rows if client != "z")


def test_answers_of_unknown_senders_are_counted_and_touch_nobody() -> None:
    result = run(lambda answer, round: [answer, answer._replace(client="nobody"), None])
    assert [row.get("unknown_senders") for row in result.history] == [2.0, 2.0]
    assert set(statuses(result, 1)) == {*HONEST, "z"}
    plain = run(None)
    assert "unknown_senders" not in plain.history[0]
    assert {**result.history[0], "unknown_senders": None} == {**plain.history[0], "unknown_senders": None}


def test_a_second_answer_or_a_failure_in_another_name_is_of_no_use() -> None:
    result = run(lambda answer, round: [answer, Failure(answer.client, "training", "no"), answer])
    assert statuses(result, 1) == {**dict.fromkeys(HONEST, "used"), "z": "sent more than one answer"}


def test_scores_that_were_not_asked_for_are_dropped() -> None:
    scores = {"test": Scores(np.array([20.0, 20.0, 0.0, 0.0, 0.0]), CLASSES)}
    result = run(lambda answer, round: [answer._replace(scores=scores)], evaluate_every=2, rounds=3)
    plain = run(lambda answer, round: [answer._replace(scores={})], evaluate_every=2, rounds=3)
    assert "client_accuracy" not in result.history[0]
    assert "accuracy" not in result.clients[0]
    assert statuses(result, 1)["z"] == statuses(plain, 1)["z"] == "used"


def test_a_client_cannot_grade_others_nor_itself_twice() -> None:
    """A table has no sender; whatever it says of clients that sent scores, their rows stay."""
    wrong = ScoreTable(["a", "b"], np.full((2, 5), 1e300), CLASSES)
    result = run(lambda answer, round: [answer, wrong])
    plain = run(None)
    for row, same in zip(result.clients, plain.clients, strict=True):
        assert row["client"] == same["client"]
        assert row["accuracy"] == same["accuracy"]


def test_the_order_of_answers_does_not_matter() -> None:
    class Reversed(ScriptedSites):
        def ask(self, *arguments: Any, **settings: Any) -> Any:
            return reversed([*super().ask(*arguments, **settings)])

    def result(kind: type[ScriptedSites]) -> Result:
        torch.manual_seed(0)
        sites = kind(HONEST, ["z"], lambda answer, round: [answer, replace(Failure("z", "x", "y"))])
        return Federation(sites, Algorithm(), nn.Linear(2, CLASSES), test=ServerTest(), rounds=2).run()

    assert result(ScriptedSites).clients == result(Reversed).clients


@pytest.mark.parametrize("lie", [1e300, 1e30, 1e6, -1e30, 10**400, float("nan"), float("inf"), None])
def test_one_loss_of_four_cannot_set_the_loss_of_the_round(lie: Any) -> None:
    def script(answer: Answer, round: int) -> list[Any]:
        if answer.reply is None:
            return [answer]
        return [answer._replace(reply=replace(answer.reply, metrics={"loss": lie}))]

    lied, plain = (result.history[0]["loss"] for result in (run(script), run(None)))
    assert abs(float(lied or 0)) <= MAX_LOSS_RATIO * float(plain or 0)


def test_the_loss_of_a_round_is_the_weighted_mean_without_lies() -> None:
    weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert mean_loss([1.0, 2.0, 4.0], weights) == 2.0
    assert mean_loss([1.0, None, 4.0], weights) == 2.0
    assert mean_loss([1.0, 1.0, 1e9], weights) == 0.75 + 0.25 * MAX_LOSS_RATIO
    assert mean_loss([None, None, None], weights) is None
    assert mean_loss([], weights[:0]) is None
