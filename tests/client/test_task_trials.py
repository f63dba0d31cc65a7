"""Model and loss are tried on a few examples before the first round."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from task_models import OfNames, Returns, fitted, object_of, of, whole
from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.objectives import CrossEntropy, Proximal
from steelyard.objectives.own_loss import OwnLoss
from steelyard.task import Task

SIZE = 5  # tokens, and classes
TARGETS = whole(2, SIZE, high=SIZE)


class Recurrent(nn.Module):
    """Classes of tokens, in the last dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0])  # type: ignore[no-any-return]


def convolution(*kernel: int) -> nn.Module:
    kind = nn.Conv1d if len(kernel) == 1 else nn.Conv2d
    return kind(3, SIZE, kernel, padding="same")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "inputs", "class_dim"),
    [
        pytest.param(Recurrent(), torch.rand(2, SIZE, 3), -1, id="recurrent"),
        pytest.param(nn.Embedding(SIZE, SIZE), TARGETS, -1, id="embedding"),
        pytest.param(nn.Linear(SIZE, SIZE), torch.rand(2, SIZE, SIZE), -1, id="as-many-features"),
        pytest.param(convolution(3), torch.rand(2, 3, SIZE), 1, id="convolution"),
        pytest.param(
            OfNames(lambda x, labels: nn.Linear(3, SIZE)(x)), {"x": torch.rand(2, SIZE, 3)}, -1, id="dict"
        ),
    ],
)
def test_as_many_tokens_as_classes_are_told_apart_by_inputs_that_are_shorter(
    model: nn.Module, inputs: Any, class_dim: int
) -> None:
    assert fitted(model, TARGETS, inputs).class_dim == class_dim
    given = Task(predictions=lambda outputs: outputs)
    assert fitted(model, TARGETS, inputs, given).class_dim == class_dim


def test_as_many_rows_and_columns_as_classes_are_told_apart_too() -> None:
    targets = whole(2, SIZE, SIZE, high=SIZE)
    assert fitted(convolution(3, 3), targets, torch.rand(2, 3, SIZE, SIZE)).class_dim == 1
    assert fitted(nn.Linear(3, SIZE), targets, torch.rand(2, SIZE, SIZE, 3)).class_dim == -1


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        pytest.param(of(SIZE, SIZE), torch.zeros(2, 4), id="inputs-say-nothing"),
        pytest.param(Returns(lambda x: x @ x.mT), torch.rand(2, SIZE, 3), id="pairs-of-tokens"),
        pytest.param(
            nn.Sequential(nn.Flatten(), nn.Linear(SIZE * 3, SIZE**2), nn.Unflatten(1, (SIZE, SIZE))),
            torch.rand(2, SIZE, 3),
            id="fixed-length",
        ),
    ],
)
def test_where_classes_are_must_be_said_if_it_stays_open(model: nn.Module, inputs: Tensor) -> None:
    words = r"client 'oslo': .*\(2, 5, 5\), whose classes may be in dimension 1 or in the last; give"
    with pytest.raises(InputError, match=words):
        fitted(model, TARGETS, inputs)
    for class_dim in (1, -1):
        assert fitted(model, TARGETS, inputs, Task(class_dim=class_dim)).class_dim == class_dim


def test_logits_of_an_object_have_their_classes_last() -> None:
    assert fitted(object_of(SIZE, SIZE), TARGETS).class_dim == -1
    with pytest.raises(InputError, match="classes may be in dimension 1"):
        fitted(object_of(SIZE, SIZE), TARGETS, task=Task(predictions=lambda outputs: outputs.logits))


def no_targets(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


def three(model: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean()


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) == targets).float().mean()


def called(name: str, targets: str, reason: str) -> str:
    """The words of a loss that failed on outputs of three classes."""
    with_what = rf"called with \(outputs, targets\), a tensor of shape \(2, 3\) and {targets}"
    return f"client 'oslo': the loss {name} failed when it was {with_what}: {reason}"


@pytest.mark.parametrize(
    ("loss", "targets", "words"),
    [
        pytest.param(no_targets, None, called("no_targets", "nothing", "TypeError"), id="no-targets"),
        pytest.param(three, whole(2), called("three", "a tensor.*", "TypeError"), id="three-arguments"),
        pytest.param(
            nn.CrossEntropyLoss(weight=torch.ones(2)),
            whole(2),
            called("CrossEntropyLoss", "a tensor.*", "RuntimeError: weight tensor"),
            id="weights",
        ),
        pytest.param(right, whole(2), "the loss right cannot be differentiated; compute", id="accuracy"),
        pytest.param(lambda outputs, targets: 0.5, whole(2), "client 'oslo': .* returned float", id="float"),
    ],
)
@pytest.mark.parametrize("wrap", [OwnLoss, lambda loss: Proximal(base=loss)], ids=["alone", "wrapped"])
def test_a_loss_that_does_not_work_is_refused(loss: Any, targets: Any, words: str, wrap: Any) -> None:
    with pytest.raises(InputError, match=words) as error:
        fitted(of(3), targets, objective=wrap(loss))
    assert str(error.value).count(".\n") == 0


class TwoHeads(nn.Module):
    """Returns a second output while it trains, and may need more than one example."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Any:
        return (self.layers(x), x) if self.training else self.layers(x)


def of_both(outputs: Any, targets: Tensor) -> Tensor:
    logits, other = outputs
    logits += 1  # in place, as in training
    return F.cross_entropy(logits, targets) + other.square().mean()


def test_a_loss_is_tried_on_what_the_model_returns_while_it_trains() -> None:
    assert fitted(TwoHeads(), whole(2), objective=OwnLoss(of_both)).targets == "classes"
    with pytest.raises(InputError, match="the loss of_both failed"):
        fitted(of(3), whole(2), objective=OwnLoss(of_both))


def test_a_loss_may_change_outputs_and_targets_in_place() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        outputs += 1
        targets.fill_(0)
        return F.cross_entropy(outputs, targets)

    targets = whole(2)
    fitted(nn.Linear(4, 3), targets, objective=OwnLoss(loss))
    assert torch.equal(targets, whole(2))


def test_a_model_that_cannot_train_on_one_example_is_left_to_its_round() -> None:
    assert fitted(TwoHeads(), whole(1), objective=OwnLoss(of_both)).targets == "classes"


@pytest.mark.parametrize("wrap", [lambda objective: objective, lambda objective: Proximal(base=objective)])
def test_class_weights_of_another_number_are_refused(wrap: Any) -> None:
    objective = wrap(CrossEntropy(class_weights=(1.0, 2.0)))
    assert fitted(of(2), whole(2), objective=objective).outputs == 2
    with pytest.raises(InputError, match="there are 2 class_weights, but the model has 3 classes"):
        fitted(of(3), whole(2), objective=objective)


class Scaled(nn.Module):
    """A loss with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs * self.scale, targets)


def test_a_loss_with_parameters_of_its_own_is_refused_unless_they_are_frozen() -> None:
    with pytest.raises(InputError, match=r"the loss Scaled has parameters to train \(scale\), but only"):
        Proximal(base=Scaled())
    frozen = Scaled().requires_grad_(False)
    assert fitted(of(3), whole(2), objective=OwnLoss(frozen)).targets == "classes"
