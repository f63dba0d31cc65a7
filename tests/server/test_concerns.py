"""A run that came to its end with a model that is not what the user thinks it is says so."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted_sites import CLASSES, ScriptedSites, ServerTest, recorded_run
from torch import nn

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.engines import Serial
from steelyard.errors import SteelyardWarning
from steelyard.server.concerns import concerns
from steelyard.server.federation import Federation
from steelyard.sites import Answer
from steelyard.types import Failure, Row

NONE = {"used": 0.0, "nll": 0.5}
SOME = {"used": 2.0, "nll": 0.5}


@pytest.mark.parametrize(
    ("history", "finite", "found"),
    [
        ([SOME, SOME], True, []),
        ([NONE, NONE], True, ["no round changed the model"]),
        ([SOME, NONE, NONE], True, []),
        ([SOME, SOME, NONE, NONE, NONE], True, ["the last 3 rounds .* that of round 2"]),
        ([NONE, NONE, NONE, NONE, SOME], True, []),
        ([SOME], False, ["the model is not finite"]),
        ([NONE], False, ["no round changed", "the model is not finite"]),
        ([{**SOME, "nll": math.nan}], True, ["the score of the test set is not a number"]),
        ([{**SOME, "nll": None}], True, ["the score of the test set is not a number"]),
        ([{"used": 1.0, "mse": math.nan}], True, ["the score of the test set is not a number"]),
        ([{"used": 1.0}], True, []),
        ([], True, []),
    ],
)
def test_what_is_wrong_with_a_run(history: list[Row], finite: bool, found: list[str]) -> None:
    texts = concerns(history, finite)
    assert len(texts) == len(found)
    assert all(re.search(pattern, text) for pattern, text in zip(found, texts, strict=True))


def failing_after(round: int) -> Any:
    def script(answer: Answer, number: int) -> list[Any]:
        return [answer if number <= round else Failure(answer.client, "training", "no disk")]

    return script


def test_rounds_in_which_all_clients_fail_do_not_end_a_run_and_are_noted_in_the_end(tmp_path: Path) -> None:
    sites = ScriptedSites([], ["a", "b"], failing_after(2))
    run = recorded_run(tmp_path / "run", sites, 6)
    assert [row["used"] for row in run.rounds] == [2, 2, 0, 0, 0, 0]
    assert run.meta["status"] == "finished"
    assert run.meta["warning"].startswith("the last 4 rounds did not change the model")
    assert "no disk" in run.clients[-1]["status"]


def data(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, generator=draw), torch.arange(count) % 3


def federation(**settings: Any) -> Any:
    torch.manual_seed(0)
    clients = {name: data(12, number) for number, name in enumerate("abc")}
    settings = {"engine": Serial(), "rounds": 3, "test": data(9, 7), **settings}
    return sy.Federation(clients, nn.Linear(2, 3), **settings)


def test_a_good_run_has_no_warnings() -> None:
    assert federation().run().warnings == ()


def test_a_run_whose_clients_all_diverge_warns_and_its_record_says_so(tmp_path: Path) -> None:
    algorithm = Algorithm(training=sy.Training(lr=1e32))
    with pytest.warns(SteelyardWarning, match="no round changed the model"):
        result = federation(algorithm=algorithm).run(recorder=sy.Recorder(tmp_path / "run"))
    assert len(result.warnings) == 1
    assert sy.Run(tmp_path / "run").meta["warning"] == result.warnings[0]
    assert sy.Run(tmp_path / "run").meta["status"] == "finished"


@pytest.mark.parametrize("recorded", [False, True])
def test_a_test_set_with_nan_is_noticed(tmp_path: Path, recorded: bool) -> None:
    inputs, labels = data(9, 7)
    inputs[4, 1] = math.nan
    with pytest.warns(SteelyardWarning, match="the score of the test set is not a number"):
        federation(test=(inputs, labels)).run(recorder=sy.Recorder(tmp_path / "run") if recorded else None)


def test_a_model_that_is_not_finite_is_noticed() -> None:
    model = nn.Linear(2, CLASSES)
    nn.init.constant_(model.weight, math.nan)
    result = Federation(ScriptedSites("ab"), Algorithm(), model, test=ServerTest(), rounds=2).run()
    with pytest.warns(SteelyardWarning) as caught:
        result.warn()
    assert [str(each.message) for each in caught] == list(result.warnings)
    assert "the model is not finite" in result.warnings[-1]
