"""Own metrics: sums of batches and clients, added up, give what the metric gives on everything at once."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import (
    ExplainedVariance,
    MeanAbsoluteError,
    MeanMetric,
    MeanSquaredError,
    Metric,
    MetricCollection,
    PearsonCorrCoef,
    R2Score,
)
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    BinaryROC,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassCohenKappa,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MultilabelF1Score,
)

from steelyard.client.batch_scoring import fitted_metrics, own_sums
from steelyard.components import build
from steelyard.errors import InputError
from steelyard.metrics import named
from steelyard.metrics.own import OwnMetrics
from steelyard.task import FittedTask
from steelyard.texts import kebab

COUNT = 50
DRAW = torch.Generator().manual_seed(0)
TWO, THREE, PAIR, ONE = (torch.randn(COUNT, width, generator=DRAW) for width in (2, 3, 2, 1))
CLASSES, BINARY = torch.arange(COUNT) % 3, torch.arange(COUNT) % 2
LABELS = torch.randint(2, (COUNT, 3), generator=DRAW)
DENSE, TAGS = torch.randn(COUNT, 3, 4, generator=DRAW), torch.randint(3, (COUNT, 4), generator=DRAW)
TAGS[:, 0] = -100


def computed(metric: Any, kind: Any, outputs: Tensor, targets: Tensor, **about: Any) -> dict[str, float]:
    """The metric from sums over three batches, the last of them short."""
    task = FittedTask(kind, 1, False, metrics=OwnMetrics({"own": metric}), **about)
    metrics = fitted_metrics(task, outputs[:2], targets[:2], 2)
    task = replace(task, metrics=metrics)
    parts = zip(outputs.split(20), targets.split(20), strict=True)
    sums = np.sum([own_sums(task, shown, truth, len(truth)) for shown, truth in parts], axis=0)
    assert sums.shape == (metrics.size,) == metrics.counts.shape == metrics.owners.shape
    assert (sums[metrics.counts] >= 0).all()
    found = metrics.compute(sums)
    assert list(found) == metrics.names
    return found


def direct(metric: Any, *seen: Tensor) -> list[float]:
    return [float(each) for each in torch.as_tensor(metric(*seen)).reshape(-1)]


@pytest.mark.parametrize(
    ("metric", "kind", "outputs", "targets", "seen"),
    [
        pytest.param(
            BinaryAUROC(thresholds=200), "classes", TWO, BINARY, TWO.softmax(1)[:, 1], id="two-logits"
        ),
        pytest.param(BinaryAccuracy(), "labels", ONE, BINARY, ONE.sigmoid().squeeze(1), id="one-logit"),
        pytest.param(MulticlassF1Score(3), "classes", THREE, CLASSES, THREE.softmax(1), id="f1"),
        pytest.param(
            MulticlassAUROC(3, thresholds=50), "classes", THREE, CLASSES, THREE.softmax(1), id="auroc"
        ),
        pytest.param(
            MulticlassAccuracy(3, average="micro", top_k=2),
            "classes",
            THREE,
            CLASSES,
            THREE.softmax(1),
            id="top",
        ),
        pytest.param(MultilabelF1Score(3), "labels", THREE, LABELS, THREE.sigmoid(), id="labels"),
        pytest.param(
            MultilabelF1Score(3), "labels", THREE, LABELS.float(), THREE.sigmoid(), id="float-labels"
        ),
        pytest.param(MeanAbsoluteError(), "numbers", PAIR, TWO, PAIR, id="numbers"),
        pytest.param(MeanAbsoluteError(), "numbers", ONE, TWO[:, 0], ONE.squeeze(1), id="one-number"),
        pytest.param(R2Score(), "numbers", PAIR, TWO, PAIR, id="r2"),
        pytest.param(R2Score(multioutput="raw_values"), "numbers", PAIR, TWO, PAIR, id="r2-of-each"),
        pytest.param(R2Score(), "numbers", ONE, TWO[:, 0], ONE.squeeze(1), id="r2-of-one-number"),
        pytest.param(ExplainedVariance(), "numbers", PAIR, TWO, PAIR, id="explained-variance"),
    ],
)
def test_sums_of_batches_give_what_torchmetrics_gives_on_all_examples(
    metric: Any, kind: str, outputs: Tensor, targets: Tensor, seen: Tensor
) -> None:
    truth = targets.long() if kind != "numbers" else targets
    found = computed(metric, kind, outputs, targets)
    assert list(found.values()) == pytest.approx(direct(metric, seen, truth), rel=1e-5)


def test_tokens_that_are_ignored_are_not_measured() -> None:
    found = computed(MulticlassF1Score(3), "classes", DENSE, TAGS)
    counted = TAGS != -100
    seen = DENSE.movedim(1, -1)[counted].softmax(1)
    assert found["own"] == pytest.approx(direct(MulticlassF1Score(3), seen, TAGS[counted])[0], rel=1e-5)


def test_several_numbers_have_numbered_names() -> None:
    metric = MulticlassF1Score(3, average=None)
    found = computed(metric, "classes", THREE, CLASSES)
    assert list(found) == ["own_0", "own_1", "own_2"]
    assert list(found.values()) == pytest.approx(direct(metric, THREE.softmax(1), CLASSES), rel=1e-5)
    assert list(computed(MeanSquaredError(num_outputs=2), "numbers", PAIR, TWO)) == ["own_0", "own_1"]
    assert list(computed(R2Score(multioutput="raw_values"), "numbers", PAIR, TWO)) == ["own_0", "own_1"]


def test_the_numbers_of_a_matrix_have_row_and_column_in_their_names() -> None:
    found = computed(MulticlassConfusionMatrix(3), "classes", THREE, CLASSES)
    assert list(found) == [f"own_{truth}_{predicted}" for truth in range(3) for predicted in range(3)]
    wanted = np.zeros((3, 3))
    np.add.at(wanted, (CLASSES.numpy(), THREE.argmax(1).numpy()), 1)
    assert list(found.values()) == wanted.flatten().tolist()


def test_a_collection_gives_the_metrics_in_it() -> None:
    metrics = MetricCollection({"f1": MulticlassF1Score(3), "top2": MulticlassAccuracy(3, top_k=2)})
    found = computed(metrics, "classes", THREE, CLASSES)
    wanted = metrics(THREE.softmax(1), CLASSES)
    assert found == pytest.approx({f"own_{name}": float(value) for name, value in wanted.items()}, rel=1e-5)


@pytest.mark.parametrize("each", [True, False], ids=["of-each", "mean"])
def test_a_function_is_averaged_over_examples_also_when_the_last_batch_is_short(each: bool) -> None:
    def error(outputs: Tensor, targets: Tensor) -> Tensor:
        assert outputs.shape == (len(targets), 3)  # as the model returns them
        return F.cross_entropy(outputs, targets, reduction="none" if each else "mean")

    found = computed(error, "classes", THREE, CLASSES)
    assert found == {"own": pytest.approx(float(F.cross_entropy(THREE, CLASSES)), rel=1e-6)}


def test_a_function_may_return_numbers_of_python_and_numpy() -> None:
    for value in (0.25, np.float32(0.25), np.array([0.25]), torch.tensor([0.25])):
        assert computed(lambda outputs, targets, value=value: value, "loss", THREE, CLASSES) == {"own": 0.25}


def test_the_metric_that_was_given_is_not_changed() -> None:
    metric = MulticlassF1Score(3)
    metric.update(THREE.softmax(1), CLASSES)
    before = metric.compute()
    computed(metric, "classes", THREE[:30], CLASSES[:30])
    assert metric.compute() == before


def test_a_metric_that_is_not_defined_is_nan_without_a_warning() -> None:
    given = {
        "auroc": MulticlassAUROC(3, thresholds=5),
        "mean": lambda outputs, targets: 1.0,
        "fit": R2Score(),
    }
    metrics = OwnMetrics(given)
    found = metrics.compute(np.zeros(metrics.size))
    assert list(found) == metrics.names == ["auroc", "mean", "fit"]
    assert math.isfinite(found["auroc"])
    assert math.isnan(found["mean"])
    assert math.isnan(found["fit"])
    assert all(map(math.isnan, metrics.compute(np.full(metrics.size, math.nan)).values()))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_function_without_a_finite_value_gives_nan(value: float) -> None:
    assert math.isnan(computed(lambda outputs, targets: value, "numbers", PAIR, TWO)["own"])


@pytest.mark.parametrize("kind", ["classes", "loss"])
def test_a_batch_in_which_all_is_ignored_adds_nothing(kind: Any) -> None:
    def nll(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    given = {"nats": nll, "micro": MulticlassAccuracy(3, average="micro"), "f1": MulticlassF1Score(3)}
    given = given if kind == "classes" else {"nats": nll}
    task = FittedTask(kind, 3, False, metrics=OwnMetrics(given))
    ignored = torch.full_like(TAGS, -100)
    assert fitted_metrics(task, DENSE[:2], ignored[:2], 2) is task.metrics
    assert own_sums(task, DENSE, ignored, COUNT).tolist() == [0.0] * task.metrics.size
    assert own_sums(task, DENSE, TAGS, COUNT).any()


def test_sums_that_a_client_invented_do_not_break_the_server() -> None:
    metrics = OwnMetrics(
        {"f1": MulticlassF1Score(3), "mae": MeanAbsoluteError(), "confusion": BinaryAUROC(thresholds=5)}
    )
    for value in (-1.0, 1e30, 1e60, 0.5):
        found = metrics.compute(np.full(metrics.size, value))
        assert not any(map(math.isinf, found.values()))


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        pytest.param({"a": BinaryAUROC()}, "keeps every prediction, .* take a form with sums", id="list"),
        pytest.param({"a": PearsonCorrCoef()}, "is not a sum.*take another metric", id="not-a-sum"),
        pytest.param({"a": BinaryAUROC}, "not the class BinaryAUROC", id="class"),
        pytest.param({"a": 3}, "must be an object of torchmetrics or a function .* not int", id="number"),
        pytest.param({"a": "f1"}, "must be an object of torchmetrics or a function .* not str", id="text"),
        pytest.param([MeanMetric()], "metrics must be {name: metric}, not list", id="sequence"),
        pytest.param({"loss": lambda a, b: 0}, "'loss': that name is taken; choose another", id="reserved"),
        pytest.param({"Accuracy": lambda a, b: 0}, "'Accuracy': that name is taken", id="reserved-case"),
        pytest.param({"exact_match": lambda a, b: 0}, "that name is taken", id="labels"),
        pytest.param({"client_x": lambda a, b: 0}, "that name is taken", id="prefix"),
        pytest.param({"a": lambda a, b: 0, "A": lambda a, b: 0}, "that name is taken", id="twice"),
        pytest.param({"a b": lambda a, b: 0}, "take a letter, then letters", id="blank"),
        pytest.param({1: lambda a, b: 0}, "cannot be called 1", id="not-a-name"),
        pytest.param({"a": MulticlassConfusionMatrix(11)}, "returns 121 numbers; average them", id="many"),
        pytest.param({"a": BinaryROC(thresholds=5)}, "returns a tuple; take one that returns", id="tuple"),
        pytest.param({"fell_back": lambda a, b: 0}, "'fell_back': that name is taken", id="evidence"),
        pytest.param(
            {"a": MulticlassF1Score(3, average=None), "a_1": lambda a, b: 0},
            "two metrics are called 'a_1'",
            id="both",
        ),
        pytest.param(
            {"a": MetricCollection([MulticlassF1Score(3)]), "a_MulticlassF1Score": lambda a, b: 0},
            "that name is taken",
            id="in-a-collection",
        ),
    ],
)
def test_metrics_that_cannot_be_are_refused_in_one_sentence(metrics: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        OwnMetrics(metrics)
    assert "\n" not in str(error.value)


def raising(outputs: Any, targets: Any) -> float:
    raise ValueError("only\none class.")


@pytest.mark.parametrize(
    ("metric", "outputs", "words"),
    [
        (lambda outputs, targets: outputs, THREE, r"a tensor of shape \(2, 3\) for 2 examples; return one"),
        (lambda outputs, targets: outputs.mean(0), THREE, r"of shape \(3,\) for 2 examples; return one"),
        (lambda outputs, targets: outputs.mean(0), TWO, r"of shape \(2,\) for one example; return one"),
        (lambda outputs, targets: outputs[:15].sum(1), THREE, r"shape \(15,\) for 20 examples"),
        (lambda outputs, targets: None, THREE, "'own' failed on a batch.*must return one number"),
        (lambda outputs, targets: {"a": 1}, THREE, "'own' failed on a batch"),
        (raising, THREE, "'own' failed on a batch: ValueError: only one class; it must return"),
        (MulticlassF1Score(5), THREE, "'own' cannot take these predictions"),
        (BinaryAUROC(thresholds=5), THREE, "'own' cannot take these predictions"),
    ],
)
def test_metrics_that_do_not_work_on_a_batch_say_so(metric: Any, outputs: Tensor, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        computed(metric, "classes", outputs, CLASSES)
    assert "\n" not in str(error.value)


def test_a_function_that_needs_several_examples_is_taken() -> None:
    def spread(outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) < 2:
            raise ValueError("too few")
        return outputs.sum(1)

    assert computed(spread, "classes", THREE, CLASSES)["own"] == pytest.approx(float(THREE.sum(1).mean()))


class Total(Metric):
    """A sum of errors in a state that begins as a whole number; with `rows`, one for each example."""

    def __init__(self, rows: bool = False) -> None:
        super().__init__()
        self.rows = rows
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        errors = (predicted - targets).abs().sum(dim=1)
        self.total = self.total + (errors if self.rows else errors.sum())

    def compute(self) -> Tensor:
        return torch.as_tensor(self.total)


def test_a_state_has_the_type_that_the_first_batch_gives_it() -> None:
    wanted = float((PAIR - TWO).abs().sum())
    assert computed(Total(), "numbers", PAIR, TWO)["own"] == pytest.approx(wanted, rel=1e-6)


def test_states_that_do_not_add_up_over_batches_are_refused() -> None:
    words = r"'own': its state 'total' has the shape \(20,\), and had \(2,\) in the first batch.*take another"
    with pytest.raises(InputError, match=words):
        computed(Total(rows=True), "numbers", PAIR, TWO)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_server_without_data_finds_the_same_sums_from_the_outputs_of_the_model(width: int) -> None:
    outputs, targets = torch.randn(2, 9, width, generator=DRAW)
    metrics = OwnMetrics({"fit": R2Score(multioutput="raw_values"), "mae": MeanAbsoluteError(), "f": raising})
    task = FittedTask("numbers", width, False, metrics=OwnMetrics({"fit": R2Score(multioutput="raw_values")}))
    found = metrics.sized(torch.zeros(3, width))
    fitted = fitted_metrics(task, outputs[:1], targets[:1], 1)
    assert found.size - 4 == fitted.size == 3 * width + 1
    assert [*fitted.names, "mae", "f"] == found.names
    assert vars(found.metrics["fit"])["forms"] == vars(fitted.metrics["fit"])["forms"]
    assert found.metrics["mae"] is metrics.metrics["mae"]


def test_names_that_a_rule_uses_are_refused() -> None:
    metrics = OwnMetrics({"Trust": raising, "f1": MulticlassF1Score(3, average=None)})
    metrics.check_free(["agreement", "f1_3"], "so it is")
    for name in ("trust", "f1", "f1_2"):
        with pytest.raises(InputError, match=f"(?i)called '{name}': so it is; choose another name"):
            metrics.check_free([name], "so it is")


def test_objects_of_torchmetrics_say_which_way_they_get_better() -> None:
    metrics = OwnMetrics(
        {
            "agreement": MulticlassCohenKappa(3),
            "error": MeanAbsoluteError(),
            "each": MulticlassF1Score(3, average=None),
            "margin": lambda outputs, targets: outputs.max(),
        }
    )
    assert metrics.modes == {
        "agreement": "max",
        "error": "min",
        **dict.fromkeys(("each_0", "each_1", "each_2"), "max"),
    }


@pytest.mark.parametrize("name", named.__all__)
def test_metrics_that_a_spec_can_name_get_better_the_way_that_torchmetrics_says(name: str) -> None:
    made = build("metrics", {"name": kebab(name)}, num_classes=6)
    assert OwnMetrics({"mine": made}).modes == {"mine": named.MODES[name]}
