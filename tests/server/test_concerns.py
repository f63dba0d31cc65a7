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
from steelyard.errors import ParticipationWarning, SteelyardWarning
from steelyard.server.concerns import Participation, concerns
from steelyard.server.federation import Federation
from steelyard.sites import Answer
from steelyard.types import Failure, Round, Row

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
        ([{**SOME, "own": math.nan, "two_1": None}], True, ["no finite value of 'own', 'two_1'; look at"]),
        ([{**SOME, "own": 0.5, "client_own": math.nan}], True, ["no finite value of 'own'; look at"]),
        ([{**SOME, "validation_own": None}, {**SOME, "validation_own": 1.0}], True, []),
        ([], True, []),
    ],
)
def test_what_is_wrong_with_a_run(history: list[Row], finite: bool, found: list[str]) -> None:
    texts = concerns(history, finite, ["own", "two_0", "two_1"])
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
    with pytest.warns(SteelyardWarning, match="^1 of 9 examples of the test set have values that are not"):
        built = federation(test=(inputs, labels))
    with pytest.warns(SteelyardWarning, match="the score of the test set is not a number"):
        built.run(recorder=sy.Recorder(tmp_path / "run") if recorded else None)


def test_a_model_that_is_not_finite_is_noticed() -> None:
    model = nn.Linear(2, CLASSES)
    nn.init.constant_(model.weight, math.nan)
    result = Federation(ScriptedSites("ab"), Algorithm(), model, test=ServerTest(), rounds=2).run()
    with pytest.warns(SteelyardWarning) as caught:
        result.warn()
    assert [str(each.message) for each in caught] == list(result.warnings)
    assert "the model is not finite" in result.warnings[-1]


def asked(number: int, **statuses: str) -> Round:
    rows = tuple({"client": client, "status": status} for client, status in statuses.items())
    return Round(number, {"used": float(sum(status == "used" for status in statuses.values()))}, rows, {})


def noticed(*rounds: Round) -> tuple[str, ...]:
    participation = Participation()
    for round in rounds:
        participation(round)
    return participation.notices()


def test_clients_that_are_often_rejected_or_fail_are_named_with_the_last_reason() -> None:
    rounds = [
        asked(1, a="used", b="failed while training: no disk", c="sent \x1b[31mnothing"),
        asked(2, a="used", b="failed while training: no disk", c="used"),
        asked(3, a="failed while training: once", b="sent no reply", c="used"),
        asked(4, a="used", b="idle", c="used"),
    ]
    assert noticed(*rounds) == (
        "client 'b' was rejected or failed in 3 of 3 rounds; the last time, it sent no reply.",
    )


def test_of_many_clients_the_first_are_named() -> None:
    everyone = {f"client-{number}": "sent no reply" for number in range(9)}
    *named, more = noticed(asked(1, a="used", **everyone))
    assert [text.split("'")[1] for text in named] == [f"client-{number}" for number in range(5)]
    assert "its only round" in named[0]
    assert more == "4 more clients were rejected or failed as often."


def test_skipped_rounds_are_named_and_are_not_the_fault_of_their_clients() -> None:
    skipped = [asked(number, a="not used: the round fell below its quorum") for number in (2, 3)]
    (text,) = noticed(asked(1, a="used"), *skipped)
    assert text.startswith("2 of 3 rounds did not change the model")
    assert text.endswith(": 2, 3.")
    assert noticed(*skipped) == ()  # `concerns` says that no round changed the model


def test_a_python_run_warns_of_a_client_with_broken_data() -> None:
    inputs, labels = data(12, 0)
    clients = {"oslo": (inputs * math.nan, labels), "turin": data(12, 1), "porto": data(12, 2)}
    with pytest.warns(SteelyardWarning, match=r"^12 of 12 examples of the training data of client 'oslo'"):
        run = sy.Federation(clients, nn.Linear(2, 3), rounds=3, engine=Serial()).run
    with pytest.warns(ParticipationWarning, match=r"^client 'oslo' was rejected or failed in 3 of 3 rounds"):
        result = run()
    assert result.warnings == ()
    assert [text.split("'")[1] for text in result.notices] == ["oslo"]
    assert "&#x27;oslo&#x27; was rejected" in result._repr_html_()
