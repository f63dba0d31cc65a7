"""Own metrics of a spec: in the record, on the screen, in comparisons and grids, and on the page."""

import json
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard

import steelyard as sy
from steelyard.page.report import page_data
from steelyard.runs.reader import Run

CODE = """
import torchmetrics.classification


def recall(num_classes: int, average: str = "macro"):
    return torchmetrics.classification.MulticlassRecall(num_classes, average=average)


def sure():
    return lambda outputs, targets: outputs.softmax(1).amax(1)
"""


@pytest.fixture
def recorded(place: Path) -> Path:
    found = sy.run(
        out=place / "runs",
        rounds=2,
        metrics={"f1": "f1", "top": {"name": "top-k", "k": 2}},
        **{"data.clients": 3, "training.steps": 2},
    )
    assert found.path is not None
    return found.path


def test_the_record_has_own_metrics_of_rounds_and_clients(recorded: Path) -> None:
    run = Run(recorded)
    assert json.loads(str(run.meta["metrics"])) == ["f1", "top"]
    for row in run.rounds:
        assert 0 <= row["f1"] <= 1
        assert row["top"] >= row["accuracy"]
    assert run.spec is not None


def test_show_prints_own_metrics_and_names_them_in_json(recorded: Path) -> None:
    shown = output(steelyard("show", recorded))
    assert "f1" in shown
    assert "top" in shown
    found = json.dumps(json.loads(output(steelyard("show", recorded, "--json"))))
    assert '"f1"' in found


def test_the_page_has_own_metrics(recorded: Path) -> None:
    assert '"f1"' in json.dumps(page_data([recorded]))


def test_runs_are_compared_by_own_metrics() -> None:
    words = ("compare", "fedavg", "fedprox", *QUICK, "metrics.f1=f1", "--metric", "f1", "--json")
    found = json.loads(output(steelyard(*words)))
    assert [list(row["metrics"]) for row in found["rows"]] == [["f1"], ["f1"]]


def test_the_best_model_is_chosen_by_an_own_metric() -> None:
    settings = {"data.clients": 3, "training.steps": 2, "validation": 0.2}
    result = sy.run(rounds=3, metrics={"f1": "f1"}, monitor="f1", mode="max", **settings)
    assert result.best_score == max(row["validation_f1"] for row in result.history)


def test_code_of_ones_own_makes_metrics(place: Path) -> None:
    (place / "own_metrics_for_cli.py").write_text(CODE)
    module = "own_metrics_for_cli"
    named = {"recall": {"name": f"{module}:recall", "average": "micro"}, "sure": f"{module}:sure"}
    result = sy.run(rounds=1, metrics=named, **{"data.clients": 3, "training.steps": 2})
    last = result.history[-1]
    assert last["recall"] == pytest.approx(last["accuracy"])  # of all classes together
    assert 0.1 <= last["sure"] <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("metrics.f1=f2", "unknown metric 'f2': did you mean 'f1'?"),
        (
            'metrics.f1={name = "f1", averag = "micro"}',
            "unknown setting 'averag' of metric 'f1': did you mean",
        ),
        ('metrics.f1={name = "f1", average = "mean"}', "average"),
        ("metrics.accuracy=f1", "that name is taken"),
        ('metrics.auroc={name = "auroc", thresholds = "many"}', "thresholds"),
    ],
)
def test_mistakes_are_named_in_one_sentence(change: str, words: str) -> None:
    result = steelyard("run", *QUICK, change)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
