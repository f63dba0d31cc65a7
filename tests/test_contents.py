"""What an object is, as text: the same in every process, and another if anything in it was changed."""

import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score

from steelyard.contents import Hasher, text_of


def weighted(weight: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda outputs, targets: F.cross_entropy(outputs, targets, weight=weight)


def powers(outputs: Tensor, power: float = 2.0, *, scale: float = 1.0) -> Tensor:
    return scale * outputs.abs() ** power


def cubes(outputs: Tensor, power: float = 3.0, *, scale: float = 1.0) -> Tensor:
    return scale * outputs.abs() ** power


def nested(text: str) -> Callable[[], Any]:
    return lambda: [word for word in text.split() if word in {"a", "b", "c", "d", "e", "f"}]


class Loss(nn.Module):
    factor = 2.0

    def __init__(self, weight: list[float], inner: Any = None) -> None:
        super().__init__()
        self.weight, self.inner, self._private = torch.tensor(weight), inner, {"of": weight}
        self.layer = nn.Linear(1, 1)
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, self.weight) * self.factor

    @functools.cached_property
    def half(self) -> float:
        return self.factor / 2


class Harder(Loss):
    factor = 3.0


class Other(Loss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs, targets).square()


class Lazy(Loss):
    @functools.cached_property
    def half(self) -> float:
        return self.factor / 3


@dataclass(frozen=True)
class Settings:
    names: list[str] = field(default_factory=list)
    power: float = 1.0

    def apply(self, value: float) -> float:
        return value**self.power


class Node:
    """An object that leads to itself."""

    def __init__(self, value: float) -> None:
        self.value, self.me = value, self


class Unreadable:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise OSError


DIFFERENT: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "constant": (lambda: lambda x: 2 * x, lambda: lambda x: 3 * x),
    "attribute": (lambda: lambda x: x.sum(), lambda: lambda x: x.mean()),
    "nested": (lambda: lambda x: [lambda: 1], lambda: lambda x: [lambda: 2]),
    "default": (lambda: powers, lambda: cubes),
    "closure": (lambda: weighted(torch.ones(3)), lambda: weighted(torch.zeros(3))),
    "closure of text": (lambda: nested("a b"), lambda: nested("a c")),
    "partial": (lambda: functools.partial(powers, power=2), lambda: functools.partial(powers, power=3)),
    "partial of": (lambda: functools.partial(powers, power=2), lambda: functools.partial(cubes, power=2)),
    "method": (lambda: Loss([1.0]).forward, lambda: Loss([2.0]).forward),
    "module": (lambda: nn.HuberLoss(delta=1.0), lambda: nn.HuberLoss(delta=2.0)),
    "buffer": (
        lambda: nn.CrossEntropyLoss(weight=torch.ones(2)),
        lambda: nn.CrossEntropyLoss(weight=torch.zeros(2)),
    ),
    "tensor of a module": (lambda: Loss([1.0]), lambda: Loss([2.0])),
    "function of a module": (lambda: Loss([1.0], torch.relu), lambda: Loss([1.0], torch.tanh)),
    "class attribute": (lambda: Harder([1.0]), lambda: Loss([1.0])),
    "property": (lambda: Lazy([1.0]), lambda: Loss([1.0])),
    "child": (
        lambda: nn.Sequential(nn.Dropout(0.1), nn.ReLU()),
        lambda: nn.Sequential(nn.Dropout(0.2), nn.ReLU()),
    ),
    "metric": (lambda: MulticlassF1Score(3), lambda: MulticlassF1Score(3, average="micro")),
    "thresholds": (lambda: MulticlassAUROC(3, thresholds=5), lambda: MulticlassAUROC(3, thresholds=6)),
    "array": (lambda: np.arange(3), lambda: np.arange(3.0)),
    "shape": (lambda: torch.zeros(2, 3), lambda: torch.zeros(3, 2)),
    "class": (lambda: Other, lambda: Loss),
    "dataclass": (lambda: Settings(["a"]), lambda: Settings(["b"])),
    "its class": (lambda: Settings, lambda: Node),
    "circle": (lambda: Node(1.0), lambda: Node(2.0)),
    "numbers": (lambda: {"a": (1, math.inf)}, lambda: {"a": (1, math.nan)}),
    "half precision": (lambda: torch.ones(2, dtype=torch.bfloat16), lambda: torch.ones(2).half()),
    "sparse": (lambda: torch.eye(2).to_sparse(), lambda: torch.ones(2, 2).to_sparse()),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_is_made_alike_has_one_text_and_anything_else_another(
    one: Callable[[], Any], other: Callable[[], Any]
) -> None:
    assert text_of(one()) == text_of(one())
    assert text_of(one()).rpartition("#")[2] != text_of(other()).rpartition("#")[2]


def test_the_class_of_an_object_counts_with_its_code() -> None:
    made = [Hasher().hash(kind([1.0])) for kind in (Loss, Harder, Other, Lazy)]
    assert len(set(made)) == 4


def test_the_words_say_what_it_is() -> None:
    text = text_of(nn.CrossEntropyLoss(label_smoothing=0.1))
    assert text.startswith("CrossEntropyLoss(")
    assert "label_smoothing=0.1" in text
    assert text_of(torch.optim.Adam) == "torch.optim.adam.Adam"
    assert text_of(powers).startswith(f"{__name__}.powers #")
    assert text_of(functools.partial(powers, power=3)).startswith(f"partial of {__name__}.powers #")
    assert text_of(object()).startswith("<object object> #")


def test_a_metric_that_was_used_is_the_same() -> None:
    metric = MulticlassF1Score(3)
    before = text_of(metric)
    metric(torch.eye(3), torch.arange(3))
    assert text_of(metric) == before


def test_what_is_equal_need_not_be_one_object() -> None:
    shared = torch.ones(2)
    assert text_of([shared, shared]) == text_of([torch.ones(2), torch.ones(2)])


def test_an_object_that_cannot_be_read_counts_by_its_class() -> None:
    assert Hasher().hash(Unreadable()) == Hasher().hash(Unreadable())


def texts() -> list[str]:
    return [text_of(made()) for pair in DIFFERENT.values() for made in pair]


def test_the_text_is_the_same_in_every_process() -> None:
    program = "import json, test_contents; print(json.dumps(test_contents.texts()))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True)
    assert json.loads(done.stdout) == texts()
    assert b" at 0x" not in done.stdout
