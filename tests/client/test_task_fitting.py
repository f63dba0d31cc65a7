"""What a model is for is found from its first batch, or refused in a sentence that says what to do."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from task_models import OfNames, Returns, bert_config, fitted, gpt2, object_of, of, tokens, whole
from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.objectives import (
    Auto,
    BinaryCrossEntropy,
    CrossEntropy,
    ModelLoss,
    Objective,
    Proximal,
    SquaredError,
)
from steelyard.objectives.auto import usual_objective
from steelyard.objectives.own_loss import OwnLoss
from steelyard.task import Task

LABELS = torch.tensor([[1, 0, 1], [0, 0, 1]])
BINARY = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("model", "targets", "kind", "outputs", "plain"),
    [
        pytest.param(of(3), whole(2), "classes", 3, True, id="class-numbers"),
        pytest.param(object_of(3), whole(2), "classes", 3, False, id="class-numbers-in-logits"),
        pytest.param(of(1), torch.rand(2), "numbers", 1, True, id="one-number"),
        pytest.param(of(), torch.rand(2), "numbers", 1, False, id="one-number-without-a-column"),
        pytest.param(of(1), torch.rand(2, 1), "numbers", 1, False, id="one-number-in-a-column"),
        pytest.param(of(1), torch.tensor([0.0, 1.0]), "labels", 1, False, id="yes-or-no-of-float"),
        pytest.param(of(), torch.tensor([0.0, 1.0]), "labels", 1, False, id="yes-or-no-of-float-flat"),
        pytest.param(of(1), torch.tensor([0.0, 2.0]), "numbers", 1, True, id="zero-or-two"),
        pytest.param(of(1), torch.ones(2), "numbers", 1, True, id="ones-alone"),
        pytest.param(of(2), torch.rand(2, 2), "numbers", 2, False, id="two-numbers"),
        pytest.param(of(4, 50), torch.rand(2, 4, 50), "numbers", 1, False, id="many-numbers"),
        pytest.param(of(3), LABELS, "labels", 3, False, id="labels-of-int"),
        pytest.param(of(3), LABELS.bool(), "labels", 3, False, id="labels-of-bool"),
        pytest.param(of(3), LABELS.float(), "labels", 3, False, id="labels-of-float"),
        pytest.param(of(1), BINARY, "labels", 1, False, id="yes-or-no"),
        pytest.param(of(), BINARY, "labels", 1, False, id="yes-or-no-without-a-column"),
        pytest.param(of(5), torch.tensor([-100, 2]), "classes", 5, True, id="ignored-class"),
    ],
)
def test_outputs_and_targets_say_what_they_are(
    model: nn.Module, targets: Tensor, kind: str, outputs: int, plain: bool
) -> None:
    found = fitted(model, targets)
    assert (found.targets, found.outputs, found.plain, found.has_loss) == (kind, outputs, plain, False)


@pytest.mark.parametrize(
    ("model", "targets", "class_dim", "classes"),
    [
        pytest.param(of(5, 3), whole(2, 5), -1, 3, id="tokens-last"),
        pytest.param(of(3, 5), whole(2, 5), 1, 3, id="tokens-first"),
        pytest.param(object_of(3, 5), whole(2, 5), 1, 3, id="tokens-first-in-logits"),
        pytest.param(object_of(5, 5), whole(2, 5), -1, 5, id="as-many-tokens-as-classes-in-logits"),
        pytest.param(of(3, 4, 6), whole(2, 4, 6), 1, 3, id="pixels-first"),
        pytest.param(of(4, 6, 3), whole(2, 4, 6), -1, 3, id="pixels-last"),
        pytest.param(of(3, 4, 6), whole(2, 4, 6).masked_fill_(whole(2, 4, 6) == 0, -100), 1, 3, id="ignored"),
    ],
)
def test_classes_of_tokens_and_pixels_are_found_in_their_dimension(
    model: nn.Module, targets: Tensor, class_dim: int, classes: int
) -> None:
    found = fitted(model, targets)
    assert (found.targets, found.class_dim, found.outputs) == ("classes", class_dim, classes)
    assert found.wide
    shown, truth = found.aligned(found.seen(model(torch.zeros(2, 4))), targets)
    F.cross_entropy(shown, truth)  # in the shapes of torch


def test_a_task_says_what_is_not_found_by_itself() -> None:
    assert fitted(of(5, 5), whole(2, 5), task=Task(class_dim=-1)).class_dim == -1
    assert fitted(of(3), LABELS.float(), task=Task(targets="numbers")).targets == "numbers"
    pair = Returns(lambda x: (of(3)(x), "attention"))
    found = fitted(pair, whole(2), task=Task(predictions=lambda outputs: outputs[0]))
    assert (found.targets, found.outputs, found.plain) == ("classes", 3, False)
    named = Task(call=lambda model, inputs: model(inputs["left"] + inputs["right"]))
    inputs = {"left": torch.zeros(2, 4), "right": torch.zeros(2, 4)}
    assert fitted(nn.Linear(4, 3), whole(2), inputs, named).outputs == 3
    skipping = fitted(of(3), whole(2), task=Task(ignore_index=2))
    assert (skipping.plain, skipping.ignore_index) == (False, 2)
    ignoring = OwnLoss(nn.CrossEntropyLoss(ignore_index=1))
    assert fitted(of(3), whole(2), objective=ignoring).ignore_index == 1
    assert fitted(of(3), whole(2), task=Task(ignore_index=2), objective=ignoring).ignore_index == 2


def objective(name: str) -> Objective:
    return Proximal(base=OwnLoss(nn.SmoothL1Loss())) if name == "proximal" else SquaredError()


def test_the_objective_decides_between_labels_and_numbers() -> None:
    assert fitted(of(3), LABELS, objective=SquaredError()).targets == "numbers"
    assert fitted(of(1), BINARY, objective=objective("proximal")).targets == "numbers"
    assert fitted(of(1), BINARY.float(), objective=objective("proximal")).targets == "numbers"
    assert fitted(of(1), BINARY.float(), objective=OwnLoss(lambda o, y: o.sum())).targets == "numbers"
    assert fitted(of(1), torch.ones(2), objective=OwnLoss(nn.BCEWithLogitsLoss())).targets == "labels"
    assert fitted(of(2), torch.rand(2, 2), objective=BinaryCrossEntropy()).targets == "labels"
    soft = fitted(of(3), torch.rand(2, 3), objective=OwnLoss(nn.CrossEntropyLoss()))
    assert (soft.targets, soft.outputs) == ("loss", 0)


@pytest.mark.parametrize(
    "returned",
    [
        lambda loss: loss,
        lambda loss: (loss, "logits"),
        lambda loss: {"loss": loss},
        lambda loss: SimpleNamespace(loss=loss, logits=torch.zeros(2, 3)),
    ],
    ids=["number", "tuple", "dict", "object"],
)
def test_without_targets_the_model_returns_its_loss(returned: Any) -> None:
    model = Returns(lambda x: returned(x.float().mean()))
    found = fitted(model, None)
    assert (found.targets, found.has_loss, found.outputs, found.plain) == ("loss", True, 0, False)
    assert isinstance(usual_objective(found), ModelLoss)


@pytest.mark.parametrize(
    ("targets", "kind"),
    [(whole(2, 3), "classes"), (LABELS.float(), "labels"), (torch.rand(2, 3), "numbers")],
    ids=["classes", "labels", "numbers"],
)
@pytest.mark.parametrize("usual", [True, False], ids=["usual", "other"])
def test_a_model_with_another_loss_than_the_usual_one_is_scored_by_its_loss(
    targets: Tensor, kind: str, usual: bool
) -> None:
    losses = {
        "classes": F.cross_entropy,
        "labels": F.binary_cross_entropy_with_logits,
        "numbers": F.mse_loss,
    }

    def forward(x: Tensor, labels: Tensor | None) -> Any:
        logits = of(*((4, 3) if kind == "classes" else (3,)))(x)
        loss = None if labels is None else losses[kind](logits, labels) * (1 if usual else 1.1)
        return {"logits": logits, "loss": loss}

    found = fitted(OfNames(forward), targets, {"x": torch.zeros(2, 4)})
    assert found.has_loss
    assert found.targets == (kind if usual else "loss")
    own = {"classes": nn.CrossEntropyLoss(), "labels": nn.BCEWithLogitsLoss(), "numbers": nn.MSELoss()}[kind]
    assert fitted(OfNames(forward), targets, {"x": torch.zeros(2, 4)}, None, OwnLoss(own)).targets == kind


def test_an_objective_for_classes_says_that_predictions_are_their_logits_but_not_of_tokens() -> None:
    def forward(x: Tensor, labels: Tensor | None) -> Any:
        logits = of(3)(x) if labels is None or labels.dim() == 1 else of(4, 3)(x)
        return {"logits": logits, "loss": None if labels is None else logits.square().mean()}

    def found(targets: Tensor, objective: Objective) -> str:
        return fitted(OfNames(forward), targets, {"x": torch.zeros(2, 4)}, None, objective).targets

    assert found(whole(2), Auto()) == "loss"
    assert found(whole(2), CrossEntropy()) == "classes"
    assert found(whole(2), Proximal()) == "classes"
    assert found(whole(2, 4), Proximal()) == "loss"  # a language model's targets are shifted


@pytest.mark.parametrize("zero", [False, True], ids=["random-head", "zero-head"])
def test_a_causal_model_is_not_scored_place_by_place_even_if_the_losses_are_equal_by_chance(
    zero: bool,
) -> None:
    def forward(x: Tensor, labels: Tensor | None) -> Any:
        logits = of(6, 6)(x) * (0 if zero else 1e-4)
        shifted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()  # type: ignore[index]
        return SimpleNamespace(logits=logits, loss=F.cross_entropy(*shifted))

    found = fitted(OfNames(forward), whole(2, 6, high=6), {"x": torch.zeros(2, 4)})
    assert (found.targets, found.has_loss) == ("loss", True)


def test_a_loss_is_a_mean_over_examples_unless_it_depends_on_class_numbers_of_tokens() -> None:
    def picky(x: Tensor, labels: Tensor | None) -> Any:
        return None if labels is None else F.one_hot(labels, 3).float().mean()  # negative classes are errors

    x = {"x": torch.zeros(2, 4)}
    for function in (lambda x, labels: x.mean(), picky):
        assert fitted(OfNames(function), whole(2, 4), x, Task(targets="loss")).loss_from is None
    summed = OfNames(lambda x, labels: torch.zeros(()) if labels is None else labels.sum().float())
    assert fitted(summed, whole(2, 4), x, Task(targets="loss")).loss_from == 0
    assert fitted(summed, torch.rand(2, 4), x, Task(targets="loss")).loss_from is None
    assert fitted(summed, whole(2), x, Task(targets="loss")).loss_from is None


@pytest.mark.parametrize("ignored", [1, 2, 4, 6])
def test_the_first_token_of_a_causal_model_is_left_out_also_if_others_are_ignored(ignored: int) -> None:
    def forward(x: Tensor, labels: Tensor | None) -> Any:
        logits = of(6, 6)(x)
        loss = None if labels is None else F.cross_entropy(logits[:, :-1].mT, labels[:, 1:])
        return SimpleNamespace(logits=logits, loss=loss)

    targets = whole(2, 6, high=6)
    targets[:, :ignored] = -100
    found = fitted(OfNames(forward), targets, {"x": torch.zeros(2, 4)}, Task(targets="loss"))
    assert found.loss_from == 1


def test_models_of_hugging_face_are_understood() -> None:
    pytest.importorskip("transformers")
    from transformers import BertForSequenceClassification, BertForTokenClassification

    texts = BertForSequenceClassification(bert_config(num_labels=3))
    found = fitted(texts, whole(2), tokens())
    assert (found.targets, found.outputs, found.has_loss) == ("classes", 3, True)
    several = BertForSequenceClassification(
        bert_config(num_labels=3, problem_type="multi_label_classification")
    )
    assert fitted(several, LABELS.float(), tokens()).targets == "labels"
    number = BertForSequenceClassification(bert_config(num_labels=1))
    assert fitted(number, torch.rand(2), tokens()).targets == "numbers"
    tags = whole(2, 5)
    tags[:, 0] = -100
    found = fitted(BertForTokenClassification(bert_config(num_labels=5)), tags, tokens())
    assert (found.targets, found.outputs, found.class_dim) == ("classes", 5, -1)
    ids = tokens()
    found = fitted(gpt2(), ids["input_ids"], ids)
    assert (found.targets, found.outputs, found.loss_from) == ("loss", 0, 1)


def test_a_dict_without_targets_needs_a_model_that_finds_its_labels_in_it() -> None:
    inputs = {"x": torch.zeros(2, 4), "note": torch.zeros(2)}
    assert fitted(OfNames(lambda x, labels: x.mean()), None, inputs).targets == "loss"


class Columns(nn.Module):
    """A model that takes any names, but knows its own only."""

    def forward(self, **columns: Tensor) -> Tensor:
        a, b = (columns.pop(name) for name in ("a", "b"))
        if columns:
            raise KeyError(*columns)
        return a + b


def test_a_model_that_takes_any_name_need_not_take_the_targets() -> None:
    inputs = {"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)}
    found = fitted(Columns(), whole(2), inputs)
    assert (found.targets, found.has_loss, found.outputs) == ("classes", False, 3)


def test_fitting_changes_neither_the_model_nor_the_batch() -> None:
    model = Returns(lambda x: x.mul_(2)[:, :3])
    model.count = 0
    inputs = torch.ones(2, 4)
    fitted(model, whole(2), inputs)
    assert torch.equal(inputs, torch.ones(2, 4))
    assert model.training


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"targets": "class"}, "did you mean"), ({"class_dim": 2}, "must be 1 or -1, not 2")],
)
def test_a_task_that_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Task(**settings)


def test_the_usual_objective_fits_the_targets() -> None:
    for model, targets, wanted in (
        (of(3), whole(2), CrossEntropy),
        (of(3), LABELS, BinaryCrossEntropy),
        (of(2), torch.rand(2, 2), SquaredError),
    ):
        assert type(usual_objective(fitted(model, targets))) is wanted
    assert type(Auto()) is Auto
