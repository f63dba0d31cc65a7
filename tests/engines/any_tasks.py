"""Federations of every kind of batch, output, target and metric, small and quick."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import IterableDataset
from torchmetrics import MeanAbsoluteError
from torchmetrics.classification import BinaryAUROC, MulticlassF1Score, MultilabelF1Score

import steelyard as sy

NAMES = ("lima", "oslo", "pisa")


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Columns(nn.Module):
    """Two classes from a dict of columns."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.drop = nn.Linear(2, 4), nn.Linear(3, 4), nn.Dropout(0.2)
        self.out = nn.Linear(4, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        found: Tensor = self.out(self.drop(torch.tanh(self.left(left) + self.right(right))))
        return found


class Tagger(nn.Module):
    """Three classes for each token; its loss, if it gets labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.layer(x)
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return SimpleNamespace(logits=logits, loss=loss)


class Language(nn.Module):
    """A causal language model: it predicts the next token, and returns its loss if it gets labels."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 5)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.embedding(x)
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": F.cross_entropy(logits[:, :-1].mT, labels[:, 1:])}


class Coder(nn.Module):
    """An autoencoder that returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.mse_loss(self.up(self.down(x)), x)


def columns(seed: int, count: int) -> Any:
    left, right = draw(seed, count, 2), draw(seed + 1, count, 3)
    return {"left": left, "right": right, "row": torch.arange(count), "label": (left[:, 0] > 0).long()}


def tags(seed: int, count: int) -> Any:
    x = draw(seed, count, 5, 2)
    labels = (x[..., 0] > 0).long() + (x[..., 1] > 0).long()
    labels[:, 4] = -100
    labels[0] = -100
    return {"x": x, "labels": labels}


def texts(seed: int, count: int) -> Any:
    """Each token is the one before it plus 1, mostly; texts of different lengths are padded."""
    x = (draw(seed, count, 1).abs() * 5 + torch.arange(7)).long() % 5
    x[draw(seed + 1, count, 7) > 1.5] = 0
    ends = 2 + torch.arange(count)[:, None] % 6
    return {"x": x, "labels": x.masked_fill(torch.arange(7) >= ends, -100)}


def pixels(seed: int, count: int) -> Any:
    x = draw(seed, count, 2, 4, 4)
    return x, (x.sum(1) > 0).long()


def several(seed: int, count: int) -> Any:
    x = draw(seed, count, 4)
    return x, (x[:, :3] > 0).long()


def numbers(seed: int, count: int) -> Any:
    x = draw(seed, count, 4)
    return x, x @ draw(0, 4, 2) + 1


def vectors(seed: int, count: int) -> Any:
    return {"x": draw(seed, count, 4)}


def plain(seed: int, count: int) -> Any:
    x = draw(seed, count, 4)
    return x, (x[:, 0] > 0).long()


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __init__(self, seed: int, count: int) -> None:
        self.data = plain(seed, count)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(*self.data, strict=True))


def confidence(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.softmax(1).amax(1)


Made = tuple[Callable[[int, int], Any], Callable[[], nn.Module], dict[str, Any]]
KINDS: dict[str, Made] = {
    "dict": (columns, Columns, {"auroc": BinaryAUROC(thresholds=50), "confidence": confidence}),
    "tokens": (tags, Tagger, {"f1": MulticlassF1Score(3, average=None)}),
    "texts": (texts, Language, {}),
    "pixels": (pixels, lambda: nn.Conv2d(2, 2, 1), {"f1": MulticlassF1Score(2)}),
    "labels": (several, lambda: nn.Linear(4, 3), {"macro": MultilabelF1Score(3)}),
    "numbers": (numbers, lambda: nn.Linear(4, 2), {"mae": MeanAbsoluteError()}),
    "loss": (vectors, Coder, {}),
    "plain": (
        plain,
        lambda: nn.Linear(4, 2),
        {"auroc": BinaryAUROC(thresholds=50), "confidence": confidence},
    ),
    "stream": (Stream, lambda: nn.Linear(4, 2), {"confidence": confidence}),
}


def model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return KINDS[kind][1]()


def federation(kind: str, **settings: Any) -> Any:
    """Three clients with test data of their own, and a common test set of more than one batch."""
    make, _, metrics = KINDS[kind]
    clients = [
        sy.Client(name, make(10 * place, 20 + place), make(7 + place, 9)) for place, name in enumerate(NAMES)
    ]
    algorithm = sy.Algorithm(training=sy.Training(lr=0.1, batch_size=8))
    common = {"test": make(99, 300), "rounds": 2, "engine": "serial", "metrics": metrics}
    return sy.Federation(clients, model(kind), algorithm, **{**common, **settings})
