"""Kinds of malformed answers, each made out of the honest answer that the client would give."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from hostile_objects import (
    Exiting,
    Odd,
    OwnAnswer,
    OwnMessage,
    OwnReply,
    Raising,
    Rude,
    Text,
    Whole,
    freed,
    hollow,
    leaked,
    named_tuple,
    overridden,
    quantised,
    with_value,
)
from torch import Tensor, nn

from steelyard.sites import Answer, ScoreTable
from steelyard.types import Failure, Message, Reply

HONEST = "honest-b"
"""A client in whose name others may try to speak."""


class Kind(NamedTuple):
    name: str
    make: Callable[[Answer], Sequence[Any]]
    used: bool = False
    """Whether the update is used; the malformed part is then left out."""


WHOLE: dict[str, Callable[[Answer], Any]] = {
    "none": lambda answer: None,
    "number": lambda answer: 7,
    "nan": lambda answer: math.nan,
    "text": lambda answer: "answer",
    "list": lambda answer: [*answer],
    "plain tuple": lambda answer: tuple(answer),
    "dict": lambda answer: answer._asdict(),
    "class": lambda answer: Answer,
    "exception": lambda answer: RuntimeError("no answer"),
    "raising": lambda answer: Raising(),
    "exiting": lambda answer: Exiting(),
    "rude metaclass": lambda answer: Rude(),
    "a reply alone": lambda answer: answer.reply,
    "own answer type": lambda answer: OwnAnswer(*answer),
    "answer of one field": lambda answer: named_tuple(Answer, answer.client),
    "answer of no field": lambda answer: named_tuple(Answer),
    "answer of four fields": lambda answer: named_tuple(Answer, *answer, 1),
    "no id": lambda answer: answer._replace(client=None),
    "number as id": lambda answer: answer._replace(client=7),
    "bytes as id": lambda answer: answer._replace(client=b"x"),
    "list as id": lambda answer: answer._replace(client=["x"]),
    "own text as id": lambda answer: answer._replace(client=Text(HONEST)),
    "raising id": lambda answer: answer._replace(client=Raising()),
    "unknown id": lambda answer: answer._replace(client="nobody"),
    "empty id": lambda answer: answer._replace(client=""),
    "id with NUL": lambda answer: answer._replace(client=HONEST + "\0"),
    "id with a surrogate": lambda answer: answer._replace(client="\ud800"),
    "long id": lambda answer: answer._replace(client="x" * 100_000),
    "hollow failure": lambda answer: hollow(Failure),
    "failure without id": lambda answer: Failure(None, "training", "x"),  # type: ignore[arg-type]
}

REPLIES: dict[str, Callable[[Reply], Any]] = {
    "text": lambda reply: "reply",
    "dict": lambda reply: dict(vars(reply)),
    "tuple": lambda reply: (reply.client, reply.message),
    "message": lambda reply: reply.message,
    "false": lambda reply: False,
    "class": lambda reply: Reply,
    "hollow": lambda reply: hollow(Reply),
    "own type": lambda reply: hollow(OwnReply),
    "raising": lambda reply: Raising(),
    "exiting": lambda reply: Exiting(),
    "rude metaclass": lambda reply: Rude(),
    "in another name": lambda reply: replace(reply, client=HONEST),
    "without name": lambda reply: replace(reply, client=None),  # type: ignore[arg-type]
    "own text as name": lambda reply: replace(reply, client=Text(HONEST)),
    "raising name": lambda reply: replace(reply, client=Raising()),  # type: ignore[arg-type]
}

MESSAGES: dict[str, Callable[[Message], Any]] = {
    "none": lambda message: None,
    "tensor": lambda message: message.mean,
    "tuple": lambda message: tuple(message),
    "dict": lambda message: message._asdict(),
    "own type": lambda message: OwnMessage(*message),
    "of three fields": lambda message: named_tuple(Message, *message, None),
    "of one field": lambda message: named_tuple(Message, message.mean),
    "of no field": lambda message: named_tuple(Message),
    "one slot more or less": lambda message: Message(
        message.mean, message.mean.abs() if message.variance is None else None
    ),
    "empty": lambda message: named_tuple(Message, None, None),
    "raising": lambda message: Raising(),
}

VECTORS: dict[str, Callable[[Tensor], Any]] = {
    "none": lambda mean: None,
    "list": lambda mean: mean.tolist(),
    "array": lambda mean: mean.numpy(),
    "number": lambda mean: 1.0,
    "text": lambda mean: "mean",
    "raising": lambda mean: Raising(),
    "own type": lambda mean: mean.as_subclass(Odd),
    "uninitialised": lambda mean: nn.UninitializedParameter(),
    "freed": freed(0),
    "half freed": freed(4),
    "sparse": lambda mean: mean.to_sparse(),
    "mkldnn": lambda mean: mean.to_mkldnn() if torch.backends.mkldnn.is_available() else None,
    "quantised": quantised,
    "meta": lambda mean: mean.to("meta"),
    "complex": lambda mean: mean.to(torch.complex64),
    "bool": lambda mean: mean > 0,
    "integers": lambda mean: mean.int(),
    "half": lambda mean: mean.half(),
    "bfloat16": lambda mean: mean.bfloat16(),
    "double": lambda mean: mean.double(),
    "negated view": lambda mean: torch._neg_view(mean),
    "leaked from vmap": leaked,
    "row": lambda mean: mean.unsqueeze(0),
    "column": lambda mean: mean.unsqueeze(1),
    "short": lambda mean: mean[:-1],
    "long": lambda mean: torch.cat([mean, mean]),
    "empty": lambda mean: mean[:0],
    "scalar": lambda mean: mean[0],
    "nan": with_value(0, math.nan),
    "infinite": with_value(1, math.inf),
    "minus infinite": with_value(2, -math.inf),
    "huge": with_value(3, 1e31),
    "minus huge": with_value(3, -3e38),
    "all nan": lambda mean: torch.full_like(mean, math.nan),
    "1e29": lambda mean: torch.full_like(mean, 1e29),
}

GOOD_VECTORS: dict[str, Callable[[Tensor], Any]] = {
    "parameter": lambda mean: nn.Parameter(mean.clone()),
    "buffer": lambda mean: nn.Buffer(mean.clone()),
    "needs a gradient": lambda mean: mean.clone().requires_grad_(),
    "result of a gradient": lambda mean: mean.clone().requires_grad_() * 1,
    "every second": lambda mean: mean.repeat_interleave(2)[::2],
    "one value for all": lambda mean: mean[:1].expand(len(mean)),
    "with methods replaced": overridden,
    "read only": lambda mean: torch.from_numpy(mean.numpy().copy()),
}

COUNTS: dict[str, Any] = {
    "zero": 0,
    "negative": -1,
    "true": True,
    "false": False,
    "none": None,
    "fraction": 1.5,
    "float": 10.0,
    "nan": math.nan,
    "infinite": math.inf,
    "text": "10",
    "5000 digits": 10**5000,
    "minus 5000 digits": -(10**5000),
    "too many": 10**15,
    "2^63": 2**63,
    "numpy zero": np.int64(0),
    "numpy float": np.float64(10),
    "numpy bool": np.bool_(True),
    "numpy array": np.array([10, 20]),
    "tensor": torch.tensor(10),
    "list": [10],
    "own integer": Whole(10**9),
    "Fraction": Fraction(10),
    "Decimal": Decimal(10),
    "complex": 10j,
    "raising": Raising(),
    "exiting": Exiting(),
}

TEXTS: dict[str, Any] = {
    "none": None,
    "number": 10**5000,
    "bytes": b"x",
    "long": "x" * 1_000_000,
    "lines": "one\ntwo\r\nthree\u2028four",
    "escapes": "\x1b[31mred\x1b]0;title\x07\x9b1m",
    "NUL": "a\0b\x7f",
    "surrogate": "\ud800\udfff",
    "right to left": "\u202eabc\u200b",
    "own text": Text("x"),
    "exception": RuntimeError("x"),
    "raising": Raising(),
    "exiting": Exiting(),
    "empty": "",
}

SEVERAL: dict[str, Callable[[Answer], list[Any]]] = {
    "twice": lambda answer: [answer, answer],
    "three times": lambda answer: [answer, answer, answer],
    "two different": lambda answer: [answer, answer._replace(reply=None)],
    "answer and failure": lambda answer: [answer, Failure(answer.client, "training", "x")],
    "failure and answer": lambda answer: [Failure(answer.client, "training", "x"), answer],
    "nothing": lambda answer: [],
    "table of no arrays": lambda answer: [ScoreTable([answer.client], [[1.0] * 5], 3)],  # type: ignore[arg-type]
    "hollow table": lambda answer: [named_tuple(ScoreTable)],
    "table of nan": lambda answer: [ScoreTable([answer.client], np.full((1, 5), math.nan), 3)],
    "table of strangers": lambda answer: [ScoreTable(["nobody"], np.ones((1, 5)), 3)],
    "table of wrong size": lambda answer: [ScoreTable([answer.client], np.ones((2, 5)), 3)],
    "table of raising names": lambda answer: [ScoreTable(Raising(), np.ones((1, 5)), 3)],  # type: ignore[arg-type]
}


def _in_mean(make: Callable[[Tensor], Any]) -> Callable[[Answer], list[Any]]:
    return lambda answer: _changed(answer, message=_reply(answer).message._replace(mean=make(_mean(answer))))


def _reply(answer: Answer) -> Reply:
    assert answer.reply is not None
    return answer.reply


def _mean(answer: Answer) -> Tensor:
    return _reply(answer).message.mean.clone()


def _changed(answer: Answer, **changes: Any) -> list[Any]:
    return [answer._replace(reply=replace(_reply(answer), **changes))]


def reply_kinds() -> Iterator[Kind]:
    """Answers with malformed replies, and no or malformed answers."""
    for name, whole in WHOLE.items():
        yield Kind(f"answer: {name}", lambda answer, make=whole: [make(answer)])
    for name, reply in REPLIES.items():
        yield Kind(f"reply: {name}", lambda answer, make=reply: [answer._replace(reply=make(_reply(answer)))])
    for name, message in MESSAGES.items():
        make_message = lambda answer, make=message: _changed(answer, message=make(_reply(answer).message))  # noqa: E731
        yield Kind(f"message: {name}", make_message)
    for name, vector in VECTORS.items():
        yield Kind(f"mean: {name}", _in_mean(vector))
    for name, vector in GOOD_VECTORS.items():
        yield Kind(f"mean: {name}", _in_mean(vector), used=True)
    for name, count in COUNTS.items():
        yield Kind(f"count: {name}", lambda answer, count=count: _changed(answer, num_examples=count))
    for number in (np.int64(9), np.int32(9)):
        make_count = lambda answer, count=number: _changed(answer, num_examples=count)  # noqa: E731
        yield Kind(f"count: {number.dtype}", make_count, used=True)
    for name, text in TEXTS.items():
        yield Kind(f"reason: {name}", lambda answer, text=text: [Failure(answer.client, "training", text)])
        yield Kind(f"stage: {name}", lambda answer, text=text: [Failure(answer.client, text, "x")])
    for name, several in SEVERAL.items():
        yield Kind(f"several: {name}", several)
