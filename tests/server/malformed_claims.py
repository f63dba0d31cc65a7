"""Kinds of malformed metrics and scores: the update of such a client is used, and the rest is left out."""

import math
from collections import OrderedDict, UserDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from hostile_objects import Exiting, Raising, Text, Whole
from malformed_answers import Kind

from steelyard.metrics.scores import Scores
from steelyard.sites import Answer, ScoreTable
from steelyard.types import Failure


class RaisingMapping(UserDict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("no items")


class RaisingDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise SystemExit(3)


METRICS: dict[str, Any] = {
    "none": None,
    "list": [("loss", 1.0)],
    "text": "loss",
    "number": 7,
    "raising": Raising(),
    "exiting": Exiting(),
    "raising mapping": RaisingMapping(loss=1.0),
    "raising dict": RaisingDict(loss=1.0),
    "proxy": MappingProxyType({"loss": 1.0}),
    "ordered": OrderedDict(loss=1.0),
    **{
        f"name {name!r}": {name: 1.0}
        for name in (
            "Loss", "LOSS", "round", "ROUND", "Weight", "weight", "norm", "trust", "status", "client",
            "cosine", "accuracy", "num_examples", "evaluation", "reliability", "adversary", "used", "",
            "a\0b", "\ud800", 'x"; DROP TABLE clients; --', "x" * 10_000, "\x1b[31m", 7, None, b"loss",
            ("loss",), Text("loss"),
        )
    },
    "raising name": {Raising(): 1.0},
    "2100 names": {f"m{number}": 1.0 for number in range(2100)},
    **{
        f"loss {name}": {"loss": value, "steps": value}
        for name, value in {
            "text": "x",
            "none": None,
            "list": [1.0],
            "complex": 1j,
            "10^400": 10**400,
            "nan": math.nan,
            "infinite": math.inf,
            "minus infinite": -math.inf,
            "1e308": 1e308,
            "true": True,
            "raising": Raising(),
            "exiting": Exiting(),
            "own integer": Whole(7),
            "tensor": torch.tensor(1.0),
            "numpy nan": np.float64(math.nan),
            "numpy array": np.ones(3),
        }.items()
    },
}  # fmt: skip

HONEST = np.array([20.0, 12.0, 9.0, 4.0, 0.0])


def changed(place: int, value: float) -> Any:
    values = HONEST.copy()
    values[place] = value
    return Scores(values, 3)


SCORES: dict[str, Any] = {
    "none": None,
    "list": [HONEST],
    "text": "scores",
    "scores alone": Scores(HONEST, 3),
    "table": ScoreTable(["honest-b"], HONEST.reshape(1, 5), 3),
    "raising": Raising(),
    "exiting": Exiting(),
    "raising dict": RaisingDict(test=Scores(HONEST, 3)),
    "unknown name": {"train": Scores(HONEST, 3)},
    "name of a client": {"honest-b": Scores(HONEST, 3)},
    "number as name": {7: Scores(HONEST, 3)},
    "own text as name": {Text("test"): Scores(HONEST, 3)},
    "not asked for": {"test": Scores(HONEST, 3), "own_mix": Scores(HONEST, 3)},
    "good and bad": {"test": Scores(HONEST, 3), "held_out": None},
    **{
        f"scores {name}": {"test": value}
        for name, value in {
            "none": None,
            "list": [20, 12, 9, 4, 0],
            "array": HONEST,
            "tuple": (HONEST, 3),
            "of one field": tuple.__new__(Scores, (HONEST,)),
            "of three fields": tuple.__new__(Scores, (HONEST, 3, 3)),
            "of a list": Scores(HONEST.tolist(), 3),
            "of a tensor": Scores(torch.from_numpy(HONEST), 3),  # type: ignore[arg-type]
            "of objects": Scores(np.array([None] * 5, object), 3),
            "of float32": Scores(HONEST.astype(np.float32), 3),  # type: ignore[arg-type]
            "of integers": Scores(HONEST.astype(int), 3),  # type: ignore[arg-type]
            "of complex": Scores(HONEST.astype(complex), 3),  # type: ignore[arg-type]
            "big endian": Scores(HONEST.astype(">f8"), 3),
            "masked": Scores(np.ma.masked_array(HONEST), 3),
            "matrix": Scores(HONEST.reshape(1, 5), 3),
            "empty": Scores(HONEST[:0], 3),
            "short": Scores(HONEST[:4], 3),
            "long": Scores(np.ones(59), 3),
            "of 2 classes": Scores(HONEST, 2),
            "of regression": Scores(HONEST[:4], 0),
            "of -1 classes": Scores(HONEST, -1),
            "of 3.0 classes": Scores(HONEST, 3.0),  # type: ignore[arg-type]
            "of 10^30 classes": Scores(HONEST, 10**30),
            "without classes": Scores(HONEST, None),  # type: ignore[arg-type]
            "nan count": changed(0, math.nan),
            "no count": changed(0, 0.0),
            "negative count": changed(0, -20.0),
            "huge count": changed(0, 1e300),
            "infinite": changed(2, math.inf),
            "nan right": changed(1, math.nan),
            "more right than count": changed(1, 21.0),
            "negative right": changed(1, -1.0),
            "negative loss": changed(2, -9.0),
            "huge loss": changed(2, 1e308),
            "Brier above 2": changed(3, 41.0),
            "temperature": changed(4, 1e6),
        }.items()
    },
}


def claim_kinds() -> Iterator[Kind]:
    """Answers whose update is good, with malformed metrics or scores."""
    for name, metrics in METRICS.items():
        yield Kind(
            f"metrics: {name}", lambda answer, metrics=metrics: [with_metrics(answer, metrics)], used=True
        )
    for name, scores in SCORES.items():
        yield Kind(
            f"scores: {name}", lambda answer, scores=scores: [answer._replace(scores=scores)], used=True
        )
        failed = lambda answer, scores=scores: [Failure(answer.client, "training", "x", scores)]  # noqa: E731
        yield Kind(f"failure with scores: {name}", failed)


def with_metrics(answer: Answer, metrics: Mapping[str, float]) -> Answer:
    assert answer.reply is not None
    return answer._replace(reply=replace(answer.reply, metrics=metrics))
