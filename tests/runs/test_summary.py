from pathlib import Path
from typing import Any

import pytest

from steelyard.runs.reader import Run
from steelyard.runs.summary import client_table, describe_choice, summarise
from steelyard.runs.writer import Recorder
from steelyard.specs.schema import load_spec
from steelyard.types import Round
from steelyard.verdicts.sentences import verdicts_of


def used(client: str, weight: float, count: int = 10, accuracy: float | None = None) -> dict[str, Any]:
    return {
        "client": client,
        "status": "used",
        "weight": weight,
        "num_examples": count,
        "accuracy": accuracy,
    }


def aside(client: str, reason: str) -> dict[str, Any]:
    return {"client": client, "status": reason, "weight": 0.0, "num_examples": None, "accuracy": None}


def idle(client: str, accuracy: float | None = None) -> dict[str, Any]:
    return {"client": client, "status": "idle", "weight": None, "num_examples": None, "accuracy": accuracy}


def table(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The table of clients of rows that are in rounds of their own."""
    numbered = [{"round": number, **row} for number, row in enumerate(rows, 1)]
    return client_table(verdicts_of(numbered, ()).values())


def recorded(folder: Path, *rounds: Round, spec: str | None = None) -> Run:
    with Recorder(folder, spec, {"name": "mine"}) as recorder:
        for each in rounds:
            recorder(each)
    return Run(folder)


def test_the_weight_is_the_mean_over_the_rounds_that_invited_the_client() -> None:
    (row,) = table(used("a", 0.5), idle("a"), used("a", 0.25), aside("a", "sent no reply"))
    assert row["weight"] == pytest.approx((0.5 + 0.25 + 0.0) / 3)
    assert row["rounds"] == 3


def test_rounds_in_which_a_client_was_rejected_are_counted_with_the_last_reason() -> None:
    (row,) = table(aside("a", "first reason"), used("a", 1.0), aside("a", "last reason"), idle("a"))
    assert (row["rejected"], row["reason"]) == (2, "last reason")


def test_a_client_that_was_always_used_was_never_rejected() -> None:
    (row,) = table(used("a", 1.0), idle("a"))
    assert (row["rejected"], row["reason"]) == (0, None)


def test_a_client_that_was_never_invited_has_no_weight_but_an_accuracy() -> None:
    (row,) = table(idle("a", accuracy=0.75))
    assert row == {
        "client": "a",
        "num_examples": None,
        "rounds": 0,
        "weight": None,
        "equal_share": None,
        "accuracy": 0.75,
        "rejected": 0,
        "reason": None,
        "verdict": "a took part in no round.",
        "stands_out": True,
    }


def test_samples_and_accuracy_are_the_last_ones_known() -> None:
    (row,) = table(used("a", 1.0, 5, 0.5), used("a", 1.0, 7, 0.75), aside("a", "sent no reply"))
    assert (row["num_examples"], row["accuracy"]) == (7, 0.75)


def test_clients_are_listed_once_in_the_order_of_their_names() -> None:
    rows = table(used("b", 0.5), used("a", 0.5), used("b", 0.5))
    assert [row["client"] for row in rows] == ["a", "b"]


def test_scores_are_those_of_the_last_evaluation(tmp_path: Path) -> None:
    summary = summarise(
        recorded(
            tmp_path / "run",
            Round(1, {"loss": 3.0, "accuracy": 0.25}, (used("a", 1.0),)),
            Round(2, {"loss": 2.0, "accuracy": 0.75}, (used("a", 1.0),)),
            Round(3, {"loss": 1.0}, (used("a", 1.0),)),
        )
    )
    assert summary["metrics"] == {"loss": 2.0, "accuracy": 0.75}
    assert summary["accuracies"] == [0.25, 0.75]
    assert (summary["rounds"], summary["status"], summary["name"]) == (3, "finished", "mine")
    assert summary["path"] == str(tmp_path / "run")


def test_seconds_are_those_of_all_stages_of_all_rounds(tmp_path: Path) -> None:
    rounds = (Round(1, {}, (), {"train": 1.0}), Round(2, {}, (), {"train": 2.0, "evaluate": 0.5}))
    assert summarise(recorded(tmp_path / "run", *rounds))["seconds"] == 3.5


def test_a_run_without_test_data_shows_its_last_round(tmp_path: Path) -> None:
    summary = summarise(recorded(tmp_path / "run", Round(1, {"loss": 3.0}, ()), Round(2, {"loss": 2.0}, ())))
    assert summary["metrics"] == {"loss": 2.0}
    assert summary["accuracies"] == []


def test_a_run_that_broke_before_its_first_round_can_be_summarised(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Recorder(tmp_path / "run"):
        raise RuntimeError("no luck")
    summary = summarise(Run(tmp_path / "run"))
    assert (summary["status"], summary["error"], summary["rounds"]) == ("failed", "no luck", 0)
    assert (summary["metrics"], summary["clients"], summary["seed"]) == ({}, [], None)
    assert summary["name"] == "run"


def test_the_experiment_is_told_in_a_few_words(tmp_path: Path) -> None:
    spec = load_spec(None, {"seed": 5, "data.clients": 7, "data.shift": "rotation"})
    summary = summarise(recorded(tmp_path / "run", spec=spec.to_toml()))
    assert summary["seed"] == 5
    for word in ("digits", "7 clients", "dirichlet", "0.3", "rotation", "mlp"):
        assert word in summary["about"]


def test_a_choice_is_said_with_its_settings() -> None:
    assert (
        describe_choice({"name": "dirichlet", "alpha": 0.3, "min_size": 1})
        == "dirichlet (alpha 0.3, min size 1)"
    )
    assert describe_choice({"name": "iid"}) == "iid"


def test_adversaries_are_told_apart_where_the_record_knows_them() -> None:
    rows = table({**used("a", 0.5), "adversary": 1}, {**idle("b"), "adversary": 0})
    assert [row["adversary"] for row in rows] == [True, False]
    assert "adversary" not in table(used("a", 0.5))[0]
