"""Answers made malformed at random: in some places of an honest answer, other things are put."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import torch
from hostile_objects import Exiting, Raising, Text
from malformed_answers import reply_kinds
from malformed_claims import claim_kinds
from torch import Tensor

from steelyard.metrics.scores import Scores
from steelyard.sites import Answer
from steelyard.types import Failure, Message

KINDS = [*reply_kinds(), *claim_kinds()]
NUMBERS = (0.0, -0.0, 1.0, -1.0, 1e-320, 1e30, 1.1e30, 1e38, 1e308, math.inf, -math.inf, math.nan)
NAMES = (
    "loss",
    "steps",
    "Loss",
    "round",
    "weight",
    "norm",
    "status",
    "client",
    "test",
    "held_out",
    "own_mix",
)
DTYPES = (torch.float32,) * 6 + (torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64)


class Fuzzer:
    """Draws from a seed; `answers` is the number of answers made."""

    def __init__(self, seed: int) -> None:
        self.random, self.answers = Random(seed), 0

    def __call__(self, answer: Answer, round: int) -> Sequence[Any]:
        """What a hostile client sends in place of its honest answer."""
        self.answers += 1
        if answer.reply is None or self.random.random() < 0.1:
            return [answer._replace(scores=self.scores())] if answer.reply is None else self.known(answer)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            answer = self.random.choice(CHANGES)(self, answer)
        if self.random.random() < 0.02:
            return [answer] * self.random.choice((0, 2, 3))
        if self.random.random() < 0.03:
            return [Failure(self.id(answer.client), self.text(), self.junk(), answer.scores)]
        return [answer]

    def known(self, answer: Answer) -> Sequence[Any]:
        return self.random.choice(KINDS).make(answer)

    def id(self, own: Any) -> Any:
        return self.junk() if self.random.random() < 0.1 else own

    def junk(self, depth: int = 2) -> Any:
        """Anything."""
        draw = self.random
        choices: list[Callable[[], Any]] = [
            lambda: None,
            lambda: draw.choice((True, False)),
            lambda: draw.getrandbits(draw.choice((4, 31, 64, 1000))) * draw.choice((1, -1)),
            self.number,
            self.text,
            lambda: draw.randbytes(4),
            Raising,
            Exiting,
            lambda: Text("loss"),
            lambda: self.tensor(torch.zeros(9)),
            self.array,
        ]
        if depth:
            choices.append(lambda: [self.junk(depth - 1) for _ in range(draw.randrange(4))])
            choices.append(lambda: {self.text(): self.junk(depth - 1) for _ in range(draw.randrange(4))})
        return draw.choice(choices)()

    def number(self) -> float:
        if self.random.random() < 0.5:
            return self.random.choice(NUMBERS)
        return self.random.gauss(0, 1) * 10.0 ** self.random.randint(-40, 40)

    def text(self) -> str:
        draw = self.random
        if draw.random() < 0.4:
            return draw.choice(NAMES)
        points = (
            draw.choice((draw.randrange(32), draw.randrange(256), draw.randrange(0x110000))) for _ in range(6)
        )
        return "".join(map(chr, points)) * draw.choice((1, 1, 1, 200))

    def tensor(self, like: Tensor) -> Tensor:
        """A tensor whose form or values may be wrong."""
        draw = self.random
        size = draw.choice((like.numel(),) * 6 + (0, 1, max(0, like.numel() - 1), like.numel() + 1))
        found = torch.full((size,), 0.1, dtype=torch.float64)
        for _ in range(draw.randrange(3)):
            if size:
                found[draw.randrange(size)] = self.number()
        if draw.random() < 0.2:
            found = found.reshape(draw.choice(((1, size), (size, 1), (size,))))
        return found.to(draw.choice(DTYPES))

    def array(self) -> Any:
        values = np.array([20.0, 12.0, 9.0, 4.0, 0.0] * self.random.choice((1, 1, 1, 1, 2, 12)))
        for _ in range(self.random.randrange(3)):
            values[self.random.randrange(len(values))] = self.number()
        return (
            values.astype(self.random.choice((np.float64,) * 5 + (np.float32, np.int8)))
            if self.fair(values)
            else values
        )

    def fair(self, values: Any) -> bool:
        """Whether an array can be converted without a warning."""
        return bool((np.abs(values) < 100).all())

    def scores(self) -> Any:
        if self.random.random() < 0.1:
            return self.junk()
        classes = self.random.choice((3, 3, 3, 3, 0, 2, -1, 10**9, None, 3.0))
        return {self.text(): Scores(self.array(), classes), "test": Scores(self.array(), 3)}  # type: ignore[arg-type]


def _in_reply(field: str, make: Callable[[Fuzzer, Any], Any]) -> Callable[[Fuzzer, Answer], Answer]:
    def change(fuzzer: Fuzzer, answer: Answer) -> Answer:
        if answer.reply is None or type(answer.reply).__name__ != "Reply":
            return answer
        return answer._replace(
            reply=replace(answer.reply, **{field: make(fuzzer, getattr(answer.reply, field))})
        )

    return change


def _message(fuzzer: Fuzzer, message: Any) -> Any:
    if type(message) is not Message or type(message.mean) is not Tensor or fuzzer.random.random() < 0.05:
        return fuzzer.junk()
    slot = fuzzer.random.choice(("mean", "mean", "variance"))
    made = fuzzer.junk() if fuzzer.random.random() < 0.1 else fuzzer.tensor(message.mean)
    return message._replace(**{slot: made})


def _metrics(fuzzer: Fuzzer, metrics: Any) -> Any:
    if fuzzer.random.random() < 0.1:
        return fuzzer.junk()
    return {fuzzer.text(): fuzzer.junk(), "loss": fuzzer.junk(), "steps": fuzzer.number()}


CHANGES: Sequence[Callable[[Fuzzer, Answer], Answer]] = (
    lambda fuzzer, answer: answer._replace(client=fuzzer.id(answer.client)),
    lambda fuzzer, answer: answer._replace(reply=fuzzer.junk()) if fuzzer.random.random() < 0.3 else answer,
    lambda fuzzer, answer: answer._replace(scores=fuzzer.scores()),
    lambda fuzzer, answer: answer._replace(scores=fuzzer.scores()),
    _in_reply("client", lambda fuzzer, client: fuzzer.id(client)),
    _in_reply("message", _message),
    _in_reply("message", _message),
    _in_reply("num_examples", lambda fuzzer, count: fuzzer.junk()),
    _in_reply("metrics", _metrics),
    _in_reply("metrics", _metrics),
)
