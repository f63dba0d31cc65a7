"""The demo, `steelyard run` without arguments, with a small preset in place of its own."""

import json
from pathlib import Path

import pytest
from calls import output, steelyard

from steelyard.runs.reader import Run

SMALL = """
preset = "poisoned"
rounds = 2
[data]
clients = 4
[adversaries]
count = 1
[training]
steps = 2
"""


@pytest.fixture(autouse=True)
def small(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "small.toml").write_text(SMALL)
    monkeypatch.setattr("steelyard.cli.demo.PRESET", "small.toml")


def test_json_has_the_three_summaries_by_rule(place: Path) -> None:
    runs = json.loads(output(steelyard("run", "--out", "out", "--json")))["runs"]
    assert list(runs) == ["samples", "ivar-vb", "majority"]
    for rule, summary in runs.items():
        spec = Run(summary["path"]).spec
        assert Path(summary["path"]).resolve().parent == place / "out"
        assert (spec["weighing"]["name"], spec["adversaries"]["attack"]["name"]) == (rule, "gaussian")
        assert sum(client["adversary"] for client in summary["clients"]) == 1


def test_all_rules_are_given_the_same_federation_and_the_seed_reaches_it() -> None:
    runs = json.loads(output(steelyard("run", "--seed", "3", "--json")))["runs"]
    specs = [Run(summary["path"]).spec for summary in runs.values()]
    for spec in specs:
        assert (spec.pop("seed"), spec["data"]["seed"]) == (3, 3)
        del spec["name"], spec["weighing"]
    assert specs[0] == specs[1] == specs[2]


@pytest.mark.parametrize("words", [("fedavg", "rounds=1"), ("rounds=1",)])
def test_with_any_word_it_is_an_ordinary_run(words: tuple[str, ...]) -> None:
    summary = json.loads(output(steelyard("run", *words, "data.clients=2", "--json")))
    assert (summary["name"], len(summary["clients"])) == ("fedavg+rounds=1+data.clients=2", 2)


def test_the_preset_can_be_run_and_changed() -> None:
    words = ("poisoned", "weighing=ivar-vb", "rounds=1", "training.steps=1")
    summary = json.loads(output(steelyard("run", *words, "--json")))
    assert sum(client["adversary"] for client in summary["clients"]) == 3
    assert Run(summary["path"]).spec["weighing"]["name"] == "ivar-vb"
