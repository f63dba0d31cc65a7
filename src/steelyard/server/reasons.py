"""Texts about what clients did, for the record and the terminal: one printable line of limited length."""

import re

MAX_REASON = 300  # characters
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)|\x9b[0-?]*[ -/]*[@-~]")
_name_of_type = type.__dict__["__name__"].__get__  # not `type(value).__name__`, which a metaclass can change


def one_line(text: object, limit: int = MAX_REASON) -> str:
    """A text without terminal escapes, control characters and lone surrogates, cut to `limit` characters."""
    if type(text) is not str:
        return f"({kind(text)} in place of a text)"
    if len(text) <= limit and text.isprintable():
        return text
    text = _ESCAPES.sub("", text[: 10 * limit])
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def kind(value: object) -> str:
    """The type of a value, read without running any code of that type."""
    return "nothing" if value is None else one_line(_name_of_type(type(value)), 60)


def shown(value: object) -> str:
    """A number as it is, if it is short; otherwise its type."""
    if type(value) is int and value.bit_length() > 64:
        return f"a number of {value.bit_length():,} bits"
    return repr(value) if type(value) in (int, float, bool) else kind(value)


class UnusableError(Exception):
    """What a client sent cannot be used. The text says what it did: "sent a mean of shape ..."."""


def why(error: Exception, what: str) -> str:
    """The reason to record for an exception while reading `what` a client sent."""
    return (
        one_line(error.args[0])
        if type(error) is UnusableError
        else f"sent {what} that cannot be read ({kind(error)})"
    )
