"""Hostile changes to a parcel: to values of its header, to the text of the header, and to its arrays."""

import json
import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array

from steelyard.flower.wire import MAX_ARRAYS, MAX_HEADER, MAX_NAME, RAW

ESCAPES = "\x1b]0;title\x07\x1b[31m'); DROP TABLE clients;--\0\u202e\ud800\n"
FLOATS = (0.0, -1.0, 1e29, 1e31, 3e38, math.nan, math.inf, -math.inf, 1e-45)
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e300, 10**15, 2**63, 10**4299, -(10**4299)),
    *("", "10", ESCAPES, "x" * 5000, [], {}, [[]], {"a": None}),
)
NAMES = ("loss", "steps", "client", "weight", "rowid", "test", "held_out", "own_mix", "", ESCAPES, "x" * 500)
FIELDS = ("client", "spec", "run", "nonce", "round", "protocol")

Header = dict[str, Any]
Arrays = dict[str, Array]


class Change(NamedTuple):
    name: str
    make: Callable[..., Any]
    refused: bool = True
    """Whether an answer with this change alone must not be used."""


def _set_field(draw: Random, header: Header, arrays: Arrays) -> None:
    name = draw.choice(FIELDS)
    own = header[name]
    other = draw.choice([own + 1, own - 1, own + 0.0]) if name == "round" else own[:-1] + "\0"
    header[name] = draw.choice(
        [other, *(each for each in JUNK if each != own or type(each) is not type(own))]
    )


def _drop_key(draw: Random, header: Header, arrays: Arrays) -> None:
    del header[draw.choice([*header])]


def _count(draw: Random, header: Header, arrays: Arrays) -> None:
    header["examples"] = draw.choice(JUNK)


def _metrics(draw: Random, header: Header, arrays: Arrays) -> None:
    header["metrics"] = {draw.choice(NAMES): draw.choice(JUNK), "loss": draw.choice((*JUNK, *FLOATS[:5]))}


def _classes(draw: Random, header: Header, arrays: Arrays) -> None:
    name = draw.choice(NAMES)
    header["classes"] = {name: draw.choice(JUNK), "test": draw.choice((3, 3, *JUNK))}
    if draw.random() < 0.5:
        header["classes"] = {draw.choice(("test", "held_out")): draw.choice((10**4299, 9 * 10**4299, *JUNK))}
    for each in header["classes"]:
        arrays.setdefault(f"score.{each}", packed(np.ones(5)))


def _no_table(draw: Random, header: Header, arrays: Arrays) -> None:
    header[draw.choice(("metrics", "classes"))] = draw.choice(
        [each for each in JUNK if type(each) is not dict]
    )


def _failure(draw: Random, header: Header, arrays: Arrays) -> None:
    header |= {"stage": draw.choice(JUNK), "reason": draw.choice((ESCAPES * 500, *JUNK))}


def _more_keys(draw: Random, header: Header, arrays: Arrays) -> None:
    header |= {draw.choice(NAMES): draw.choice(JUNK), ESCAPES: ESCAPES}


HEADERS = (
    Change("field", _set_field),
    Change("dropped key", _drop_key),
    Change("count", _count),
    Change("metrics", _metrics, False),
    Change("classes", _classes, False),
    Change("no table", _no_table),
    Change("failure", _failure),
    Change("more keys", _more_keys, False),
)


def _with_count(draw: Random, text: str) -> str:
    value = json.loads(text)["examples"]
    digits = draw.choice(("1" + "0" * 5000, "-1" + "0" * 5000, "1e999", "NaN", "-Infinity", "1.0", "0x10"))
    return text.replace(f'"examples": {value}', f'"examples": {digits}')


TEXTS = (
    Change("count of any digits", _with_count),
    Change(
        "not JSON", lambda draw, text: draw.choice(("", "{", text[:-1], text + "}", "\ufeff" + text, "\0"))
    ),
    Change("not a table", lambda draw, text: draw.choice(("null", "[]", "1", f"[{text}]", json.dumps(text)))),
    Change("nested", lambda draw, text: '{"a":' * 10_000 + "1" + "}" * 10_000),
    Change("nested list", lambda draw, text: text[:-1] + ', "x": ' + "[" * 10_000 + "]" * 10_000 + "}"),
    Change("long", lambda draw, text: text + " " * MAX_HEADER),
    Change("NaN", lambda draw, text: text[:-1] + ', "x": NaN}'),
    Change("one character", lambda draw, text: _replaced(draw, text), False),
)


def _replaced(draw: Random, text: str) -> str:
    place = draw.randrange(len(text))
    return text[:place] + chr(draw.choice((0, 34, 44, 48, 92, 125, 0x1F600))) + text[place + 1 :]


def packed(array: Any) -> Array:
    return Array(array.dtype.name, tuple(map(int, array.shape)), RAW, array.tobytes())


def _in_mean(values: Callable[[Random, Any], Any]) -> Callable[[Random, Header, Arrays], None]:
    def change(draw: Random, header: Header, arrays: Arrays) -> None:
        arrays["mean"] = packed(values(draw, np.frombuffer(arrays["mean"].data, "<f4").copy()))

    return change


def _not_usable(draw: Random, mean: Any) -> Any:
    mean[draw.randrange(len(mean))] = draw.choice(FLOATS[3:8])
    return mean


def _other_form(draw: Random, mean: Any) -> Any:
    forms = (mean[:-1], mean[:0], mean[0], mean[None], mean[:, None], np.concatenate([mean, mean]))
    return draw.choice((*forms, mean.astype("f8"), mean.astype("i8"), mean.astype("f2"), mean > 0))


def _lies(draw: Random, header: Header, arrays: Arrays) -> None:
    """What an array says of itself does not fit its bytes."""
    name = draw.choice([*arrays])
    old = arrays[name]
    shapes = ((), (-1,), (2**62, 4), (2**40,), (True,), (3,) * 5, (len(old.data),), (0,), (1 << 5000,))
    arrays[name] = draw.choice(
        (
            Array(old.dtype, draw.choice(shapes), old.stype, old.data),
            Array(draw.choice(("object", "O", "f2", "", ESCAPES, "S8")), old.shape, old.stype, old.data),
            Array(old.dtype, old.shape, draw.choice(("numpy.ndarray", "", "pickle")), old.data),
            Array(old.dtype, old.shape, old.stype, old.data + b"\0"),
            Array(old.dtype, old.shape, old.stype, old.data[:-1]),
            Array(old.dtype, old.shape, old.stype, b""),
        )
    )


def _scores(draw: Random, header: Header, arrays: Arrays) -> None:
    values = np.array([20.0, 12.0, 9.0, 4.0, 0.0] * draw.choice((1, 1, 1, 2)))
    values[draw.randrange(len(values))] = draw.choice((*FLOATS, -5.0, 1e308))
    arrays["score.test"] = packed(draw.choice((values, values[None], values[0], values.view("i8"))))


def _signalling(draw: Random, header: Header, arrays: Arrays) -> None:
    """Bits of which a conversion makes a warning."""
    bits = np.full(draw.choice((5, 9)), 0x7FA00000, np.uint32).view(np.float32)
    arrays[draw.choice(("mean", "score.test"))] = packed(bits)


def _named(draw: Random, header: Header, arrays: Arrays) -> None:
    arrays[draw.choice(("a\0b", "mean\0", ESCAPES, "", "offer.x", "evaluated.mean"))] = arrays["mean"]


def _too_many(draw: Random, header: Header, arrays: Arrays) -> None:
    names = [f"a{number}" for number in range(MAX_ARRAYS)] if draw.random() < 0.5 else ["x" * (MAX_NAME + 1)]
    arrays |= dict.fromkeys(names, arrays["mean"])


ARRAYS = (
    Change("mean not usable", _in_mean(_not_usable)),
    Change("mean of another form", _in_mean(_other_form)),
    Change("no mean", lambda draw, header, arrays: arrays.pop("mean")),
    Change("variance", lambda draw, header, arrays: arrays.update(variance=arrays["mean"])),
    Change("mean of any values", _in_mean(lambda draw, mean: mean * np.float32(draw.choice(FLOATS))), False),
    Change("lies", _lies),
    Change("scores", _scores, False),
    Change("signalling", _signalling, False),
    Change("odd names", _named, False),
    Change("too many", _too_many),
)
