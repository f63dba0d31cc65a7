"""Scores batch by batch are those that torch and scikit-learn compute over the whole set."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score, log_loss, r2_score
from task_models import OfNames, fitted, whole
from torch import Tensor, nn
from torchmetrics.functional.classification import multiclass_calibration_error

from steelyard.client.batch_scoring import BATCH, score_batches, scored_at_once, total_scores
from steelyard.client.evaluation import predict
from steelyard.data.examples import examples
from steelyard.errors import InputError
from steelyard.metrics.scores import Scores, score
from steelyard.objectives.own_loss import OwnLoss
from steelyard.server.scoring import metrics_of
from steelyard.task import FittedTask, Task

SIZES = (1, 7, BATCH)
"""Of batches; the last batch of 23 examples is short."""
COUNT = 23


def inputs(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(COUNT, *(shape or (4,)), generator=torch.Generator().manual_seed(seed))


def scored(model: nn.Module, task: FittedTask, data: Any, size: int, detail: bool = True) -> Scores:
    return total_scores(score_batches(model, task, examples(data), 0, detail, size=size))


class Dense(nn.Module):
    """Classes of each token, [B, C, T] or [B, T, C]."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.last = nn.Conv1d(2, 3, 1), last

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x)
        return logits.movedim(1, -1) if self.last else logits


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("last", [True, False], ids=["last", "first"])
def test_classes_of_tokens_are_scored_without_those_that_are_ignored(last: bool, size: int) -> None:
    x, y = inputs(2, 5), whole(COUNT, 5)
    y[3:9] = -100  # with batches of 1, some have nothing to score
    y[:, 4] = -100
    model = Dense(last)
    task = fitted(model, y[:2], x[:2])
    found = scored(model, task, (x, y), size)
    counted = y != -100
    logits = model.layer(x).movedim(1, -1)[counted].detach().double()
    truth, log_probabilities = y[counted], logits.log_softmax(1)
    one_hot = F.one_hot(truth, 3)
    assert found.num_examples == int(counted.sum())
    metrics = metrics_of(found)
    wanted = {
        "accuracy": float((logits.argmax(1) == truth).double().mean()),
        "nll": log_loss(truth, log_probabilities.exp(), labels=[0, 1, 2]),
        "ece": float(multiclass_calibration_error(log_probabilities.exp(), truth, 3)),
        "brier": float((log_probabilities.exp() - one_hot).square().sum(1).mean()),
    }
    assert metrics == pytest.approx(wanted, rel=1e-5)
    assert found.confusion.sum() == counted.sum()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32], ids=str)
def test_labels_are_scored_as_scikit_learn_does(kind: torch.dtype, size: int) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), inputs(), whole(COUNT, 3, high=2)
    task = fitted(model, y[:2].to(kind), x[:2])
    found = metrics_of(scored(model, task, (x, y.to(kind)), size))
    logits = model(x).detach().double()
    predicted = logits > 0
    assert found == pytest.approx(
        {
            "accuracy": float((predicted == y).double().mean()),
            "exact_match": float((predicted == y).all(1).double().mean()),
            "nll": float(F.binary_cross_entropy_with_logits(logits, y.double())),
            "f1": f1_score(y, predicted, average="micro"),
        }
    )


@pytest.mark.parametrize("extreme", [False, True])
def test_probabilities_for_a_loss_that_wants_them_are_not_taken_for_logits(extreme: bool) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()), inputs(), whole(COUNT, 3, high=2).float()
    x = 1e3 * x if extreme else x
    task = fitted(model, y, x, objective=OwnLoss(nn.BCELoss()))
    found = metrics_of(scored(model, task, (x, y), 7))
    predicted = model(x).detach().double()
    assert found["accuracy"] == pytest.approx(float(((predicted > 0.5) == y).double().mean()))
    assert found["nll"] == pytest.approx(float(F.binary_cross_entropy(predicted, y.double())), rel=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_several_numbers_are_scored_as_scikit_learn_does(size: int) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 2), inputs(), inputs(2, seed=4)
    y[:, 1] += 100
    found = metrics_of(scored(model, fitted(model, y, x), (x, y), size))
    predicted = model(x).detach()
    assert found["mse"] == pytest.approx(float(F.mse_loss(predicted.double(), y.double())))
    assert found["r2"] == pytest.approx(r2_score(y, predicted), rel=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_a_loss_is_the_mean_over_examples_also_when_the_last_batch_is_short(size: int) -> None:
    x = inputs()
    model = OfNames(lambda x, labels: x.square().mean())
    found = scored(model, fitted(model, None, {"x": x[:2]}), {"x": x}, size)
    assert found.num_examples == COUNT
    assert metrics_of(found) == {"test_loss": pytest.approx(float(x.double().square().mean()))}


def shifted(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def padded(length: int = 6) -> tuple[Tensor, Tensor]:
    """Tokens, and the same as targets, most of which are ignored in some texts, and all in others."""
    x = whole(COUNT, length, high=4)
    y = x.masked_fill(torch.arange(length) >= 1 + torch.arange(COUNT)[:, None] % length, -100)
    y[:2] = x[:2]
    return x, y


class Language(nn.Module):
    """Returns the mean loss of a function over the tokens."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.loss = nn.Embedding(4, 4), loss

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.embedding(x)
        return {"logits": logits} if labels is None else {"loss": self.loss(logits, labels)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("loss", "first"),
    [(shifted, 1), (lambda logits, labels: 2 * F.cross_entropy(logits.mT, labels), 0)],
    ids=["causal", "masked"],
)
def test_a_loss_of_tokens_is_the_mean_over_those_that_count_for_any_size_of_batches(
    loss: Any, first: int, size: int
) -> None:
    x, y = padded()
    model = Language(loss)
    task = fitted(model, y[:2], {"x": x[:2]})
    assert (task.targets, task.loss_from) == ("loss", first)
    found = scored(model, task, {"x": x, "labels": y}, size)
    assert found.num_examples == int((y[:, first:] != -100).sum())
    wanted = float(loss(model.embedding(x).detach().double(), y))
    assert metrics_of(found) == {"test_loss": pytest.approx(wanted, rel=1e-6)}


@pytest.mark.parametrize("size", SIZES)
def test_a_loss_of_ones_own_is_the_mean_over_the_tokens_that_count(size: int) -> None:
    x, y = padded()
    model = nn.Embedding(4, 4)
    task = fitted(model, y[:2], x[:2], Task(targets="loss"), OwnLoss(shifted))
    found = scored(model, task, (x, y), size)
    wanted = float(shifted(model(x).detach().double(), y))
    assert metrics_of(found) == {"test_loss": pytest.approx(wanted, rel=1e-6)}


@pytest.mark.parametrize("size", SIZES)
def test_a_loss_for_each_example_is_the_mean_over_examples(size: int) -> None:
    def each(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.mT, labels, reduction="none").sum(1)

    x, y = padded()
    model = nn.Embedding(4, 4)
    task = fitted(model, y[:2], x[:2], Task(targets="loss"), OwnLoss(each))
    assert task.loss_from is None
    found = scored(model, task, (x, y), size)
    wanted = float(each(model(x).detach().double(), y).mean())
    assert found.num_examples == COUNT
    assert metrics_of(found) == {"test_loss": pytest.approx(wanted, rel=1e-6)}


def test_a_loss_of_the_users_own_is_scored_where_targets_have_no_other_meaning() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), inputs(), torch.softmax(inputs(3), 1)
    loss = nn.CrossEntropyLoss()
    task = fitted(model, y, x, objective=OwnLoss(loss))
    found = metrics_of(scored(model, task, (x, y), 7))
    assert found == {"test_loss": pytest.approx(float(loss(model(x), y).detach()))}


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_plain_data_have_the_same_scores_on_both_ways(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = torch.arange(300) % 3 if kind == "classes" else torch.randn(300)
    model = nn.Linear(4, 3 if kind == "classes" else 1)
    task = fitted(model, y[:2], x[:2])
    assert task.plain
    data = examples((x, y))
    plain = score(predict(model, data), y, detail=True)
    general = total_scores(score_batches(model, task, data, 0, True))
    assert (plain.classes, plain.kind) == (general.classes, general.kind)
    np.testing.assert_allclose(general.values, plain.values, rtol=1e-12)


def test_a_temperature_is_the_same_on_both_ways() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), inputs(), whole(COUNT)
    task, data = fitted(model, y, x), examples((x, y))
    (general,) = score_batches(model, task, data, 0, True, 2.0)
    plain = score(predict(model, data), y, True, 2.0)
    np.testing.assert_allclose(general.values, plain.values, rtol=1e-12)


def test_a_set_in_which_everything_is_ignored_has_no_scores() -> None:
    x, y = inputs(2, 5), torch.full((COUNT, 5), -100)
    model = Dense(last=False)
    found = scored(model, fitted(model, whole(COUNT, 5), x), (x, y), 7)
    assert found.num_examples == 0
    assert metrics_of(found) == {"unscored": 1.0}


def test_models_with_large_outputs_are_called_with_no_more_examples_than_in_training() -> None:
    text = fitted(Dense(last=True), whole(2, 5), torch.zeros(2, 2, 5))
    image = fitted(nn.Linear(4, 3), whole(2))
    sizes = [scored_at_once(text, batch_size) for batch_size in (1, 3, 32, 100, 10_000)]
    assert sizes == [1, 2, 32, 64, BATCH]
    assert scored_at_once(image, 1) == BATCH


def test_data_without_batches_are_refused() -> None:
    with pytest.raises(InputError, match="no batches"):
        total_scores([])


def test_the_number_of_examples_is_that_of_the_inputs_where_only_the_loss_is_known() -> None:
    x = {"x": inputs(), "labels": whole(COUNT)}
    task = Task(targets="loss")
    model = OfNames(lambda x, labels: torch.zeros(()) if labels is None else labels.float().mean())
    found = scored(model, fitted(model, whole(2), {"x": x["x"][:2]}, task), x, 7)
    assert found.num_examples == COUNT
    assert found.main == pytest.approx(float(x["labels"].double().mean()))
