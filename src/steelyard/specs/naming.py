"""The name of a run whose spec was changed: `fedavg+weighing=majority`."""

from collections.abc import Mapping
from typing import Any

from steelyard.runs.naming import with_changes
from steelyard.runs.summary import flattened
from steelyard.specs.fingerprints import NO_EFFECT

UNNAMED = ("seed", *NO_EFFECT)
"""Settings that are not part of a name: the seed has its own place in the name of a folder."""


def named_after(base: Mapping[str, Any], changed: Mapping[str, Any]) -> Any:
    """The name of a table of settings, with the settings that were changed since then."""
    name, before = changed.get("name"), flattened(base)
    if not isinstance(name, str):
        return name  # not valid; the schema says so
    changes = {
        key: value
        for key, value in flattened(changed).items()
        if key.partition(".")[0] not in UNNAMED and (key not in before or before[key] != value)
    }
    return with_changes(name, changes)
