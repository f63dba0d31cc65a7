"""The name of a run: after what is not default in it, such as `federation+weighing=majority`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from steelyard.algorithm import Algorithm
from steelyard.attacks import Attack, SignFlip
from steelyard.errors import InputError
from steelyard.objectives.own_loss import OwnLoss
from steelyard.texts import changed_fields, code_name, is_same, kebab, plain, shown

MAX_NAME = 80  # characters; folders have the time and the seed as well, and file systems allow 255


def with_changes(name: str, changes: Mapping[str, Any]) -> str:
    """A name with settings that were changed.

    Changes that make it longer than `MAX_NAME` are counted, those that the name already has first.
    """
    if not changes:
        return name
    texts = [f"{key}={_text(value)}" for key, value in changes.items()]
    counted = re.search(r"\+(\d+)-more$", name)
    first, *earlier = re.split(r"\+(?=[\w.]+=)", name.removesuffix(counted.group()) if counted else name)
    again = tuple(f"{key}=" for key in changes)
    kept = [change for change in earlier if not change.startswith(again)]
    return _shortened(first, kept, texts, int(counted[1]) if counted else 0)


def _shortened(first: str, earlier: Sequence[str], changes: Sequence[str], left_out: int) -> str:
    """The parts of a name that fit into `MAX_NAME` characters, and how many more there are."""
    counts = [(old, len(changes)) for old in range(len(earlier), -1, -1)]
    counts += [(0, new) for new in range(len(changes) - 1, -1, -1)]
    for old, new in counts:
        missing = left_out + len(earlier) - old + len(changes) - new
        more = [f"{missing}-more"] if missing else []
        full = "+".join([first, *earlier[:old], *changes[:new], *more])
        if len(full) <= MAX_NAME:
            return full
    return first


def check_name(name: object) -> str:
    """The name that a user gave."""
    if not isinstance(name, str) or not plain(name).strip():
        raise InputError(f"name must be a text, such as 'my run', not {shown(name)}.")
    return plain(name)


def in_folder_name(name: str) -> str:
    """A name as a part of a folder's name."""
    return re.sub(r"[^\w.+=-]+", "-", name)[:MAX_NAME]


def changed_parts(algorithm: Algorithm, adversaries: Mapping[str, Attack]) -> dict[str, Any]:
    """The parts that are not default, in the words of specs: `{"weighing": "krum", "weighing.f": 2}`."""
    found, usual = {}, Algorithm()
    if adversaries:
        found["adversaries.count"] = len(adversaries)
        first, *others = adversaries.values()
        if all(is_same(each, first) for each in others):
            found |= _changed("adversaries.attack", first, SignFlip())
    for one in fields(algorithm):
        found |= _changed(one.name, getattr(algorithm, one.name), getattr(usual, one.name))
    return found


def _changed(place: str, value: Any, usual: Any = None) -> dict[str, Any]:
    """One setting that was changed, with settings of its own; its name only if that was changed, too."""
    value = value.function if isinstance(value, OwnLoss) else value
    if isinstance(value, Mapping):
        inner, own = dict(value), {}
    elif is_dataclass(value) and not isinstance(value, type):
        inner = changed_fields(value)
        own = {} if type(value) is type(usual) else {place: kebab(type(value).__name__)}
    elif value is None or isinstance(value, str | int | float):
        return {place: value}
    else:
        return {place: code_name(value) or type(value).__name__}
    for key, each in inner.items():
        own |= _changed(f"{place}.{key}", each)
    return own


def _text(value: Any) -> str:
    """A value as a part of a file's name."""
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.]+", "-", text) if not _is_number(value) else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
