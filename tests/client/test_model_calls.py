"""A batch reaches a model as its `forward` takes it."""

from functools import partial
from typing import Any

import pytest
import torch
from task_models import bert_config, fitted, tokens, whole
from torch import Tensor, nn

from steelyard.task import call, signature_of, with_targets

X, Y = torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0]])
BATCH = {"x": X, "y": Y, "row": torch.arange(2)}


class One(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


class Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Optional(nn.Module):
    def forward(self, x: Tensor, *, y: Tensor | None = None) -> Tensor:
        return x if y is None else x + y


class Anything(nn.Module):
    def forward(self, **batch: Tensor) -> Any:
        return batch


class Many(nn.Module):
    def forward(self, *parts: Tensor) -> Any:
        return parts


class Positional(nn.Module):
    def forward(self, x: Tensor, /, y: Tensor) -> Tensor:
        return x - y


class Batch(nn.Module):
    def forward(self, batch: Any) -> Any:
        return batch


@pytest.mark.parametrize(
    ("model", "inputs", "found"),
    [
        pytest.param(One(), X, X, id="tensor"),
        pytest.param(Two(), (X, Y), X + Y, id="two-tensors"),
        pytest.param(Two(), BATCH, X + Y, id="names-of-a-dict"),
        pytest.param(Optional(), BATCH, X + Y, id="keyword-only"),
        pytest.param(Optional(), {"x": X, "row": Y}, X, id="optional"),
        pytest.param(Positional(), (X, Y), X - Y, id="positional-only"),
        pytest.param(Positional(), BATCH, X - Y, id="positional-only-by-name"),
        pytest.param(One(), (X,), X, id="tuple-of-one"),
    ],
)
def test_models_are_called_as_their_forward_takes_it(model: nn.Module, inputs: Any, found: Tensor) -> None:
    assert torch.equal(call(model, inputs), found)


def test_models_may_take_the_whole_batch() -> None:
    assert call(Batch(), BATCH) is BATCH
    assert call(Batch(), (X, Y)) == (X, Y)
    assert call(Anything(), BATCH) == BATCH
    assert call(Many(), (X, Y)) == (X, Y)


class Wraps(nn.Module):
    """Like a model of PEFT."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def get_base_model(self) -> nn.Module:
        return self.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


@pytest.mark.parametrize("wrap", [Wraps, nn.DataParallel, partial(torch.compile, backend="eager")])
def test_wrappers_are_called_like_the_model_inside(wrap: Any) -> None:
    assert signature_of(wrap(Two())).names == {"x", "y"}
    if wrap is Wraps:
        assert torch.equal(call(wrap(Two()), BATCH), X + Y)
        assert call(wrap(Batch()), (X, Y)) == (X, Y)


class Labelled(nn.Module):
    def forward(self, x: Tensor, targets: Tensor | None = None, **others: Tensor) -> Tensor:
        return x


def test_targets_reach_a_model_under_the_name_that_it_takes() -> None:
    given = {"x": X}
    assert with_targets(Labelled(), given, Y) == {"x": X, "targets": Y}
    assert with_targets(Anything(), given, Y) == {"x": X, "labels": Y}
    assert with_targets(One(), given, Y) == given
    assert with_targets(Labelled(), X, Y) is X


def test_models_of_peft_take_what_their_model_takes() -> None:
    peft = pytest.importorskip("peft")
    pytest.importorskip("transformers")
    from transformers import BertForSequenceClassification

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(1, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.dense(x)  # type: ignore[no-any-return]

    settings = peft.LoraConfig(r=1, target_modules=["dense"])
    found = fitted(peft.get_peft_model(Small(), settings), whole(2), BATCH)
    assert (found.targets, found.outputs, found.has_loss) == ("classes", 3, False)
    bert = BertForSequenceClassification(bert_config(num_labels=3))
    settings = peft.LoraConfig(r=1, target_modules=["query"], task_type="SEQ_CLS")
    found = fitted(peft.get_peft_model(bert, settings), whole(2), {**tokens(), "row": torch.arange(2)})
    assert (found.targets, found.outputs, found.has_loss) == ("classes", 3, True)
