"""Own metrics over three sites are those of torchmetrics on the examples of all sites in one pass."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import (
    ExplainedVariance,
    MeanSquaredError,
    Metric,
    MetricCollection,
    R2Score,
)
from torchmetrics.classification import (
    BinaryAUROC,
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)

import steelyard as sy
from steelyard.errors import InputError, SteelyardWarning

SIZES = {"lima": 300, "oslo": 41, "pisa": 7}  # test examples; the first site scores them in two batches


def made(count: int, outputs: int, numbers: bool, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, 4, generator=draw)
    wanted = inputs[:, :outputs] + 0.5 * torch.randn(count, outputs, generator=draw)
    return inputs, 3 + wanted if numbers else wanted.argmax(1)


def federation(outputs: int, numbers: bool, **settings: Any) -> Any:
    draw = torch.Generator().manual_seed(outputs)
    clients = [
        sy.Client(name, made(30, outputs, numbers, draw), made(count, outputs, numbers, draw))
        for name, count in SIZES.items()
    ]
    torch.manual_seed(0)
    return sy.Federation(clients, nn.Linear(4, outputs), **{"rounds": 1, "engine": "serial", **settings})


def of_all(result: Any, metric: Metric, outputs: int, numbers: bool) -> list[float]:
    """What torchmetrics gives for the test examples of all sites at once."""
    draw = torch.Generator().manual_seed(outputs)
    parts = [
        (made(30, outputs, numbers, draw), made(count, outputs, numbers, draw))[1] for count in SIZES.values()
    ]
    inputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
    with torch.no_grad():
        found = result.model(inputs)
    if not numbers:
        found = found.softmax(1)[:, 1] if outputs == 2 else found.softmax(1)
    value = metric(found, targets)
    return [float(each) for each in torch.as_tensor(value).reshape(-1)]


@pytest.mark.parametrize(
    ("metric", "outputs", "numbers"),
    [
        pytest.param(BinaryAUROC(thresholds=200), 2, False, id="auroc"),
        *[
            pytest.param(MulticlassF1Score(3, average=average), 3, False, id=f"f1-{average}")
            for average in ("micro", "macro", "weighted", None)
        ],
        pytest.param(MulticlassConfusionMatrix(3), 3, False, id="confusion"),
        pytest.param(MulticlassConfusionMatrix(3, normalize="true"), 3, False, id="normalised-confusion"),
        pytest.param(MeanSquaredError(num_outputs=2), 2, True, id="mse-of-each"),
        pytest.param(MeanSquaredError(squared=False), 2, True, id="rmse"),
        pytest.param(R2Score(), 2, True, id="r2"),
        pytest.param(R2Score(multioutput="raw_values"), 2, True, id="r2-of-each"),
        pytest.param(ExplainedVariance(), 2, True, id="explained-variance"),
        pytest.param(ExplainedVariance(multioutput="variance_weighted"), 3, True, id="weighted-variance"),
    ],
)
def test_three_sites_give_what_one_pass_over_all_examples_gives(
    metric: Metric, outputs: int, numbers: bool
) -> None:
    result = federation(outputs, numbers, metrics={"own": metric}).run()
    found = [value for name, value in result.history[0].items() if name.startswith("client_own")]
    assert found == pytest.approx(of_all(result, metric, outputs, numbers), rel=1e-4)
    assert result.own_metrics == tuple(
        name.removeprefix("client_") for name in result.history[0] if name.startswith("client_own")
    )
    assert all("evaluation" not in row for row in result.clients)
    assert result.warnings == ()


def test_a_collection_over_three_sites() -> None:
    metrics = MetricCollection({"f1": MulticlassF1Score(3), "top2": MulticlassAccuracy(3, top_k=2)})
    result = federation(3, False, metrics={"own": metrics}).run()
    for name, metric in metrics.items():
        assert [result.history[0][f"client_own_{name}"]] == pytest.approx(of_all(result, metric, 3, False))


@pytest.mark.parametrize("settings", [{"validation": 0.3}, {"engine": "pool"}], ids=str)
def test_states_as_wide_as_the_outputs_are_scored_wherever_sites_are(settings: Any) -> None:
    metrics = {"explained": ExplainedVariance(), "fit": R2Score()}
    row = federation(2, True, metrics=metrics, **settings).run().history[0]
    prefix = "validation_" if "validation" in settings else "client_"
    assert row[f"{prefix}fit"] < row[f"{prefix}explained"] < 1
    if prefix == "validation_":
        assert row["validation_fit"] == pytest.approx(row["validation_r2"], rel=1e-4)


class Tagger(nn.Module):
    """Three classes for each token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out = nn.Embedding(10, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.embed(x)).movedim(-1, 1)
        return found


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_a_batch_whose_tokens_are_all_ignored_changes_nothing(average: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(10, (300, 5), generator=draw)
    tags = torch.randint(3, (300, 5), generator=draw)
    tags[256:] = -100  # the second batch of the test set
    clients = {
        name: (tokens[place : place + 40], tags[place : place + 40]) for name, place in (("a", 0), ("b", 50))
    }
    metrics = {"own": MulticlassF1Score(3, average=average), "nats": nn.functional.cross_entropy}
    test = {"all": (tokens, tags), "counted": (tokens[:256], tags[:256])}
    found = {
        name: sy.Federation(clients, Tagger(), rounds=1, engine="serial", test=data, metrics=metrics)
        .run()
        .history
        for name, data in test.items()
    }
    assert found["all"] == found["counted"]
    assert found["all"][0]["nats"] == pytest.approx(found["all"][0]["nll"], rel=1e-5)


def of_each_output(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean(0)


def test_a_function_of_each_output_is_refused_also_where_the_first_batch_is_as_long() -> None:
    words = (
        r"client 'lima': metric 'own' returned a tensor of shape \(2,\) for one example; return one number"
    )
    with pytest.raises(InputError, match=words):
        federation(2, True, metrics={"own": of_each_output})


@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("agreement", "majority", "the weighing rule Majority records a figure of this name"),
        ("votes", "majority", "the weighing rule Majority records a figure of this name"),
        ("variance", "ivar-vb", "the weighing rule IvarVb records a figure of this name"),
        ("converged", "samples", "that name is taken"),
    ],
)
def test_a_metric_cannot_be_called_like_the_evidence_of_the_rule(name: str, rule: str, words: str) -> None:
    algorithm = sy.Algorithm(weighing=rule)
    with pytest.raises(InputError, match=f"^a metric cannot be called '{name}': {words}"):
        federation(3, False, algorithm=algorithm, metrics={name: MulticlassF1Score(3)})


def test_a_metric_may_be_called_like_the_evidence_of_another_rule() -> None:
    algorithm = sy.Algorithm(weighing="samples")
    assert (
        federation(3, False, algorithm=algorithm, metrics={"agreement": MulticlassF1Score(3)}).run().history
    )


def test_a_metric_cannot_be_called_like_a_score_that_labels_have_anyway() -> None:
    draw = torch.Generator().manual_seed(0)
    clients = {"a": (torch.randn(9, 4, generator=draw), torch.randint(2, (9, 3), generator=draw).float())}
    words = "^a metric cannot be called 'f1': where targets are labels, the record has a score of this name"
    with pytest.raises(InputError, match=words):
        sy.Federation(clients, nn.Linear(4, 3), metrics={"f1": lambda outputs, targets: 0.0})
    assert federation(3, False, metrics={"f1": MulticlassF1Score(3)})


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("validation", [0.3, None], ids=["share", "own tests"])
def test_a_metric_without_a_finite_value_is_said_and_does_not_choose(value: float, validation: Any) -> None:
    metrics = {"own": lambda outputs, targets: value, "one": lambda outputs, targets: 1.0}
    monitor = {"monitor": "own", "mode": "max"} if validation else {}
    settings = {"metrics": metrics, "validation": validation, "rounds": 2, **monitor}
    with pytest.warns(SteelyardWarning) as caught:
        result = federation(3, False, **settings).run()
    name = "validation_own" if validation else "client_own"
    assert all(math.isnan(row[name]) for row in result.history)
    assert result.history[-1][name.replace("own", "one")] == 1
    assert result.best is None
    assert [str(each.message) for each in caught] == list(result.warnings)
    assert result.warnings[0].startswith("in the last round there is no finite value of 'own'; look at what")
    assert [text.split(",")[0] for text in result.warnings[1:]] == (
        ["no round had a finite 'validation_own'"] if validation else []
    )
    for row in result.clients:
        assert row["evaluation"] == "sent sums of the own metric 'own' that are not finite"
        assert "own" not in row
        assert (row["one"], row["accuracy"] > 0) == (1.0, True)


def test_one_site_without_a_finite_value_does_not_spoil_the_metric() -> None:
    def only_of_many(outputs: Tensor, targets: Tensor) -> float:
        return 0.5 if len(targets) != SIZES["pisa"] else math.nan

    result = federation(3, False, metrics={"own": only_of_many}).run()
    assert result.history[0]["client_own"] == 0.5
    assert [row.get("own") for row in result.clients] == [0.5, 0.5, None]
    assert result.warnings == ()
