"""The name of a run whose spec was changed: `fedavg+weighing=majority`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.runs.summary import flattened
from steelyard.specs.fingerprints import NO_EFFECT

UNNAMED = ("seed", *NO_EFFECT)
"""Settings that are not part of a name: the seed has its own place in the name of a folder."""
MAX_NAME = 80  # characters; folders have the time and the seed as well, and file systems allow 255


def named_after(base: Mapping[str, Any], changed: Mapping[str, Any]) -> Any:
    """The name of a table of settings, with the settings that were changed since then.

    Changes that make the name longer than `MAX_NAME` are counted, those that the name already has first.
    """
    name, before = changed.get("name"), flattened(base)
    if not isinstance(name, str):
        return name  # not valid; the schema says so
    changes = [
        f"{key}={_text(value)}"
        for key, value in flattened(changed).items()
        if key.partition(".")[0] not in UNNAMED and (key not in before or before[key] != value)
    ]
    if not changes:
        return name
    counted = re.search(r"\+(\d+)-more$", name)
    first, *earlier = re.split(r"\+(?=[\w.]+=)", name.removesuffix(counted.group()) if counted else name)
    again = tuple(change.partition("=")[0] + "=" for change in changes)
    kept = [change for change in earlier if not change.startswith(again)]
    return _shortened(first, kept, changes, int(counted[1]) if counted else 0)


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


def _text(value: Any) -> str:
    """A value as a part of a file's name."""
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.]+", "-", text) if not _is_number(value) else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
