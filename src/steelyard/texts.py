"""Text and numbers that are safe to show: on a terminal, in a spreadsheet, as JSON; names in specs."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
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


def changed_fields(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not at their default."""
    values = {one: getattr(settings, one.name) for one in fields(settings)}
    return {one.name: value for one, value in values.items() if not is_same(value, _default(one))}


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def is_same(value: Any, other: Any) -> bool:
    """Whether two settings are equal; of arrays and tensors, only whether they are one object."""
    try:
        return value is other or bool(value == other)
    except Exception:  # arrays and tensors have no single answer
        return False


def brief(value: Any) -> str:
    """A value as code, with the settings that are not at their default: `Krum(f=2)`."""
    if is_dataclass(value) and not isinstance(value, type):
        return called(type(value).__name__, changed_fields(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {brief(inner)}" for key, inner in value.items()) + "}"
    return shown(value) if (name := code_name(value)) is None else name


def called(name: str, settings: Mapping[str, Any], *first: str) -> str:
    """A call as code, or what is said of an object in its form."""
    return f"{name}({', '.join([*first, *(f'{key}={brief(value)}' for key, value in settings.items())])})"


def code_name(value: Any) -> str | None:
    """The name of a function or class; None for other values."""
    name = getattr(value, "__qualname__", None)
    return name.rpartition(".")[2] if isinstance(name, str) else None


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
