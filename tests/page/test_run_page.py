"""What the page gets of a run, and that a run read bit by bit gives the same as one read at once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.page import fields, run_page, series
from steelyard.page.follower import Follower
from steelyard.page.report import page_data
from steelyard.page.run_page import RunPage
from steelyard.runs.writer import Recorder
from steelyard.types import Round
from steelyard.verdicts.reasons import to_json
from steelyard.weighing import Majority

CLIENTS = ("lyon", "oslo", "turin")
SERIES = ("cells", "evidence", "rounds")


def round_of(number: int, clients: tuple[str, ...] = CLIENTS) -> Round:
    """A round in which one client is rejected now and then, and one takes part in every second round."""
    rows: list[dict[str, Any]] = []
    for place, client in enumerate(clients):
        row: dict[str, Any] = {"client": client, "status": "used", "weight": 0.1 * number + 0.2 * place}
        row |= {"agreement": 0.3 - 0.2 * place, "trust": 1.0 / (1 + place), "norm": 1.0, "num_examples": 40}
        if client == "oslo" and number % 4 == 3:
            row = {"client": client, "status": f"sent {number} things", "weight": 0.0}
        if client == "turin" and number % 2:
            row = {"client": client, "status": "idle", "weight": None}
        rows.append(row | {"accuracy": 0.5 + 0.01 * number})
    metrics = {"used": 2.0, "rejected": 1.0, "accuracy": 0.5 + 0.01 * number, "nll": 1.0 / number}
    return Round(number, metrics, tuple(rows), {"exchange": 0.5, "evaluate": 0.25}, ((4.0, 0.5, 0.25),))


def recorder_in(path: Path) -> Recorder:
    recorder = Recorder(path, None, {"name": "three hospitals"})
    recorder.note(reasons=to_json(Majority().reasons), rule="Majority", rounds="40")
    return recorder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with recorder_in(tmp_path / "run") as recorder:
        for number in range(1, 13):
            recorder(round_of(number))
    return tmp_path / "run"


def data_of(path: Path) -> dict[str, Any]:
    page = RunPage(path)
    page.read()
    return json.loads(json.dumps(page.json(), allow_nan=False))


def test_the_page_has_the_weights_of_the_record(run: Path) -> None:
    found = data_of(run)
    assert [client["id"] for client in found["clients"]] == list(CLIENTS)
    cells = found["cells"]
    assert cells["bins"] == [[number, number] for number in range(1, 13)]
    assert cells["note"] is None
    assert cells["weight"][0] == [0.1, 0.3, None]  # turin did not take part
    assert cells["weight"][1] == [0.2, 0.4, 0.6]
    assert cells["rejected"][2] == [0, 1, 0]
    assert found["reasons"][cells["reason"][2][1]] == "sent … things"
    assert cells["reason"][0] == [-1, -1, -1]


def test_evidence_has_the_words_of_the_rule_first(run: Path) -> None:
    columns = data_of(run)["evidence"]["columns"]
    assert [column["name"] for column in columns][:2] == ["agreement", "trust"] or columns[0][
        "name"
    ] == "agreement"
    by_name = {column["name"]: column for column in columns}
    assert by_name["accuracy"]["label"] == "accuracy on the client's own test data"
    assert by_name["agreement"]["values"][1] == [0.3, 0.1, -0.1]
    assert {"weight", "adversary", "status"}.isdisjoint(by_name)


def test_clients_have_their_verdicts_and_the_run_its_headline(run: Path) -> None:
    found = data_of(run)
    assert found["clients"][1]["verdict"].startswith("oslo counted for ")
    assert "rejected in 3 of 12 rounds (3, 7, 11): it sent 11 things" in found["clients"][1]["verdict"]
    assert found["headline"] == "Test accuracy 0.620 after 12 rounds, with 3 clients, weighed by Majority."
    facts = {fact["label"]: fact for fact in found["facts"]}
    assert facts["test accuracy"] == {
        "label": "test accuracy",
        "value": "0.620",
        "note": "best 0.620, round 12",
    }
    assert facts["rejected replies"]["value"] == "12"
    assert facts["time"]["value"] == "9 s"
    assert facts["time"]["note"] == "750 ms a round"
    assert (found["done"], found["planned"], found["status"]) == (12, 40, "finished")
    assert found["measure"]["name"] == "accuracy"
    assert found["calibration"]["ece"] == 0.25
    assert found["calibration"]["bins"][0]["count"] == 4.0


def test_many_rounds_are_binned_and_the_page_says_so(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MAX_BINS", 4)
    cells = data_of(run)["cells"]
    assert cells["bins"] == [[1, 4], [5, 8], [9, 12]]
    assert cells["note"] == "12 rounds: each column is the mean of 4 rounds."
    assert cells["weight"][0] == pytest.approx([0.25, (0.3 + 0.4 + 0.0 + 0.6) / 4, (0.6 + 0.8) / 2], rel=0.01)
    assert cells["rejected"] == [[0, 1, 0]] * 3
    assert [row[1] for row in cells["reason"]] == [0, 0, 0]


def test_of_too_many_clients_those_with_extreme_shares_are_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "MAX_CLIENTS", 2)
    monkeypatch.setattr(run_page, "MAX_CLIENTS", 2)
    found = data_of(run)
    assert [client["id"] for client in found["clients"]] == ["lyon", "turin"]
    assert found["omitted"].startswith("2 of 3 clients are shown: ")
    assert len(found["cells"]["weight"][0]) == 2
    assert found["cells"]["weight"][1] == [0.2, 0.6]


def merged(data: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """What a browser has after a message; the contract in a few lines."""
    if message["type"] == "snapshot":
        return message["data"]["runs"][0]
    data = {**data, **message["fields"]}
    for part in ("cells", "evidence", "rounds"):
        if part in message:
            data[part] = _spliced(part, data[part], message[part])
    return data


def _spliced(part: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    start = new["from"]
    both = {**old, "bins": old["bins"][:start] + new["bins"], "note": new["note"]}
    if part == "cells":
        return both | {name: old[name][:start] + new[name] for name in ("weight", "rejected", "reason")}
    if part == "evidence":
        pairs = zip(old["columns"], new["columns"], strict=True)
        return both | {"columns": [{**a, "values": a["values"][:start] + b} for a, b in pairs]}
    for name in ("metrics", "seconds"):
        known = {key: old[name].get(key, [None] * start)[:start] for key in {**old[name], **new[name]}}
        both[name] = {key: values + new[name].get(key, []) for key, values in known.items()}
    return both


@pytest.mark.parametrize("max_bins", [600, 5])
def test_a_run_followed_round_by_round_is_the_run_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bins: int
) -> None:
    monkeypatch.setattr(series, "MAX_BINS", max_bins)
    monkeypatch.setattr(series, "MAX_POINTS", max_bins)
    path = tmp_path / "run"
    kinds = []
    with recorder_in(path) as recorder:
        follower = Follower(path)
        browser = merged({}, follower.snapshot())
        for number in range(1, 14):
            recorder(round_of(number, CLIENTS if number > 4 else CLIENTS[:2]))
            if number % 3 == 0 or number in (1, 7):  # 7: in the middle of a bin
                message = follower.update()
                assert message is not None
                kinds.append(message["type"])
                browser = merged(browser, json.loads(json.dumps(message)))
                assert browser["done"] == number
                whole = page_data([path])["runs"][0]
                assert [browser[part] for part in SERIES] == [whole[part] for part in SERIES]
    message = follower.update()
    assert message is not None
    browser = merged(browser, message)
    assert browser["status"] == "finished"
    whole = page_data([path])["runs"][0]
    assert browser == {**whole, "path": browser["path"]}
    assert "update" in kinds
    assert follower.update() is None


def test_nothing_new_is_no_message(run: Path) -> None:
    follower = Follower(run)
    follower.snapshot()
    assert follower.update() is None


def test_a_round_without_the_scores_of_its_model_is_not_shown_while_the_run_goes_on(tmp_path: Path) -> None:
    with recorder_in(tmp_path / "run") as recorder:
        recorder(round_of(1))
        half = round_of(2)
        recorder(Round(2, half.metrics, half.clients, {"exchange": 0.5}))
        follower = Follower(tmp_path / "run")
        assert follower.snapshot()["data"]["runs"][0]["done"] == 1
    message = follower.update()
    assert message is not None
    assert message["fields"]["done"] == 2  # it was the last one


def test_a_run_that_was_resumed_from_an_earlier_round_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with recorder_in(path) as recorder:
        for number in range(1, 6):
            recorder(round_of(number))
    follower = Follower(path)
    assert follower.snapshot()["data"]["runs"][0]["done"] == 5
    with Recorder(path, after=3):
        message = follower.update()
    assert message is not None
    assert message["type"] == "snapshot"
    assert message["data"]["runs"][0]["done"] == 3
    assert len(message["data"]["runs"][0]["cells"]["weight"]) == 3


def test_a_run_without_rounds_has_a_page(tmp_path: Path) -> None:
    with recorder_in(tmp_path / "run"):
        found = data_of(tmp_path / "run")
    assert found["clients"] == []
    assert found["headline"] == "No round yet, with 0 clients, weighed by Majority."


def test_runs_side_by_side(run: Path, tmp_path: Path) -> None:
    spec = 'seed = 3\n[weighing]\nname = "samples"\ncap = 2.0\n'
    with Recorder(tmp_path / "other" / "run", spec, {"name": "other"}) as recorder:
        recorder(round_of(1, ("lyon", "paris")))
    data = page_data([run, tmp_path / "other" / "run"])
    assert len({each["key"] for each in data["runs"]}) == 2
    comparison = data["comparison"]
    accuracy = next(row for row in comparison["metrics"] if row["name"] == "accuracy")
    assert accuracy["values"] == [0.62, 0.51]
    assert {row["name"]: row["values"] for row in comparison["settings"]} == {
        "seed": ["–", "3"],
        "weighing": ["–", "samples"],
        "weighing.cap": ["–", "2.0"],
    }
    shares = {row["id"]: row["shares"] for row in comparison["clients"]}
    assert shares["paris"][0] is None
    assert shares["lyon"][1] == pytest.approx(0.1)


def test_groups_put_clients_that_behave_alike_together(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    with recorder_in(tmp_path / "run") as recorder:
        for number in range(1, 6):
            rows = tuple(
                {
                    "client": f"c{place}",
                    "status": "used",
                    "weight": 0.0 if place in (2, 5) else 0.25,
                    "trust": 0.0 if place in (2, 5) else 1.0,
                    "agreement": float(draw.normal(0.3, 0.01)),
                }
                for place in range(6)
            )
            recorder(Round(number, {}, rows, {"evaluate": 0.0}))
    found = data_of(tmp_path / "run")
    groups = [client["group"] for client in found["clients"]]
    assert groups == [0, 0, 1, 0, 0, 1]
    assert found["groups"] == ["like most", "group 2"]
    order = found["group_order"]
    assert abs(order.index(2) - order.index(5)) == 1
