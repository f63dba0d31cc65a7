"""Text and numbers that are safe to show: on a terminal, in a spreadsheet, as JSON; names in specs."""

import json
import math
import re
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # strings for the device
)
# What is left of a sequence without its escape character, such as "[2J", is harmless and stays visible.
# Control characters but newline and tab, marks that change the direction of text, and lone surrogates.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """The text without escape sequences and control characters."""
    return UNSAFE.sub("", _SEQUENCES.sub("", text))


def escaped(text: str) -> str:
    r"""JSON or TOML with control characters written as \u001b: the same values, safe to print."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def kebab(name: str) -> str:
    """GeometricMedian → geometric-median, ALittleIsEnough → a-little-is-enough, light_cnn → light-cnn."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).replace("_", "-").lower()


def shown(value: object) -> str:
    """What an error says of a value: its code, cut off where it is long."""
    return shorten(plain(repr(value)), 100)


def csv_text(text: str) -> str:
    """Text that a spreadsheet does not take for a formula: an apostrophe is put before it. Numbers stay."""
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return plain(text)
    try:
        float(text)
    except ValueError:
        return f"'{plain(text)}"
    return text.strip()


def to_json(value: Any) -> str:
    """Compact JSON in ASCII; infinity and NaN, which JSON does not have, become null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False)


def finite(value: Any) -> Any:
    """A value for JSON, which has no infinity and no NaN: they become None, at any depth."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
