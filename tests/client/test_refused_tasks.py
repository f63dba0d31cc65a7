"""What a model is for must be clear from its first batch; else a sentence says what to do."""

from typing import Any

import pytest
import torch
from task_models import OfNames, Returns, fitted, of, whole
from torch import nn

from steelyard.errors import InputError
from steelyard.objectives.own_loss import OwnLoss
from steelyard.task import Task

REFUSED = [
    pytest.param(
        of(3, 4), whole(2, 6), {}, r"shape \(2, 3, 4\), and the targets .*say what.*'loss'", id="dense"
    ),
    pytest.param(
        of(3),
        whole(2, 1),
        {},
        r"a tensor of shape \(2, 1\); if these are class numbers, make them integers of shape \[N\]",
        id="column",
    ),
    pytest.param(
        of(3),
        whole(2, 1),
        {"task": Task(targets="classes")},
        r"kind 'classes'.*; make these integers of shape \[N\]",
        id="column-of-classes",
    ),
    pytest.param(of(3), torch.tensor([0.0, 2.0]), {}, r"make them integers of shape \[N\]", id="floats"),
    pytest.param(
        of(3),
        torch.tensor([0.0, 2.0]),
        {"objective": OwnLoss(nn.CrossEntropyLoss())},
        r"make them integers of shape \[N\]",
        id="floats-for-a-loss",
    ),
    pytest.param(
        of(3, 4, 4), whole(2, 1, 4, 4), {}, r"make them integers of shape \[N, 4, 4\]", id="mask-with-channel"
    ),
    pytest.param(of(1), whole(2, high=9), {}, "say what they are", id="counts"),
    pytest.param(of(3), torch.rand(2), {}, "say what they are", id="number-for-classes"),
    pytest.param(of(3), None, {}, "no targets, and the model returns no loss; give", id="no-targets"),
    pytest.param(
        Returns(lambda x: (of(3)(x), of(2)(x))),
        whole(2),
        {},
        r"returns \(a tensor.*say which part is the prediction: sy.Task\(predictions=",
        id="tuple",
    ),
    pytest.param(
        Returns(lambda x: (of(3)(x), of(2)(x))),
        whole(2),
        {"task": Task(targets="classes")},
        r"need a tensor of predictions.*give sy.Task\(predictions=...\)",
        id="tuple-of-classes",
    ),
    pytest.param(
        of(3),
        whole(2, 4),
        {"task": Task(targets="classes")},
        "does not fit targets of kind 'classes'",
        id="other",
    ),
    pytest.param(
        of(5, 3), whole(2, 5), {"task": Task(class_dim=1)}, "does not fit targets of kind 'classes'", id="dim"
    ),
    pytest.param(
        of(3),
        torch.rand(2),
        {"task": Task(targets="classes")},
        "does not fit targets of kind 'classes'",
        id="float",
    ),
    pytest.param(
        of(1),
        torch.rand(2, 2),
        {"task": Task(targets="numbers")},
        "does not fit targets of kind",
        id="one-for-two",
    ),
    pytest.param(
        of(3), whole(2), {"task": Task(targets="loss")}, "only the loss is to be scored, but", id="no-loss"
    ),
    pytest.param(
        nn.Linear(7, 3),
        whole(2),
        {},
        r"cannot take the inputs of client 'oslo', of shape \(4,\): ",
        id="shape",
    ),
    pytest.param(
        OfNames(lambda x, labels: x),
        whole(2),
        {"inputs": {"image": torch.zeros(2, 4)}},
        r"its forward takes \(x, labels\): name the inputs so, or give sy.Task\(call=...\)",
        id="other-names",
    ),
    pytest.param(
        nn.Bilinear(4, 4, 3),
        whole(2),
        {"inputs": (torch.zeros(2, 4),) * 3},
        r"its forward takes \(input1, input2\)",
        id="three-inputs",
    ),
]


@pytest.mark.parametrize(("model", "targets", "settings", "words"), REFUSED)
def test_what_cannot_be_understood_is_refused_in_one_sentence(
    model: nn.Module, targets: Any, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as error:
        fitted(model, targets, **settings)
    text = str(error.value)
    assert "client 'oslo'" in text
    assert "\n" not in text
    assert text.endswith(".")
    assert not text.endswith("..")
