"""The settings of a run that a program made, kept with it to notice later that one was changed."""

import json
from collections.abc import Mapping
from typing import Any

from steelyard.runs.environment import changes_since, environment, that_matters
from steelyard.runs.folder import ENVIRONMENT
from steelyard.runs.reader import Run

SETTINGS = "settings"
"""Under which the record keeps them, as JSON."""


def to_json(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings))


def with_environment(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the versions and the processor on which the numbers depend, too."""
    return {**settings, **that_matters(environment())}


def changes(run: Run, settings: Mapping[str, Any]) -> list[str]:
    """What differs from a recorded run, in its settings or the environment, each in a few words."""
    return [*changed_settings(run.meta.get(SETTINGS), settings), *changes_since(run.path / ENVIRONMENT)]


def changed_settings(recorded: str | None, settings: Mapping[str, Any]) -> list[str]:
    """The settings that differ from those of a record."""
    if recorded is None:
        return ["its settings are not recorded"]
    try:
        before = dict(json.loads(recorded))
    except (ValueError, TypeError):
        return ["its settings cannot be read"]
    now = json.loads(to_json(settings))
    return [
        f"{name} was {_text(before, name)}, now {_text(now, name)}"
        for name in {**before, **now}
        if (name in before, before.get(name)) != (name in now, now.get(name))
    ]


def _text(settings: Mapping[str, Any], name: str) -> str:
    return str(settings[name]) if name in settings else "not set"
