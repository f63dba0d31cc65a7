"""What varies in one direction of a grid, from a table of a grid file or from a word on the command line."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.errors import InputError
from steelyard.runs.summary import describe_choice
from steelyard.specs import sources as layers
from steelyard.specs.schema import Spec
from steelyard.specs.sources import Table

Choices = Mapping[str, Any] | str
"""An axis as a table of a grid file, or in short: "weighing=samples,uniform"."""


@dataclass(frozen=True)
class Axis:
    """One direction of a grid: labels, and what each changes in the spec."""

    choices: Mapping[str, Table]
    key: str = ""
    """The setting that varies, if it is one and the labels are its values."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.choices)


NOTHING = Axis({"": {}})


def read_axis(name: str, choices: Choices) -> Axis:
    """An axis from a table or from `key=value,value`."""
    if isinstance(choices, str):
        return _typed(name, choices)
    if not isinstance(choices, Mapping):
        raise InputError(f"grid.{name} should be a table of what varies, not {choices!r}.")
    entries = [entry for label, value in choices.items() for entry in _unfolded(label, value)]
    lists = [(key, value) for key, value in entries if isinstance(value, list)]
    if len(lists) == len(entries) == 1:
        key, values = lists[0]
        return _labelled(name, [(_label(value), {key: value}) for value in values], key)
    return _labelled(name, [each for key, value in entries for each in _alternatives(name, key, value)])


def _typed(name: str, text: str) -> Axis:
    """`data.partition=iid,shards`; commas between brackets and braces do not separate."""
    key, equals, values = text.partition("=")
    parts = re.split(r",(?![^\[{]*[\]}])", values)
    if not key or not equals or not all(parts):
        example = "weighing=samples,uniform"
        raise InputError(f"--{name} takes a setting and its values, such as {example}, not {text!r}.")
    return _labelled(name, [(part, dict([layers.parse_override(f"{key}={part}")])) for part in parts], key)


def _alternatives(name: str, key: str, value: Any) -> Iterator[tuple[str, Table]]:
    """What an entry of an axis stands for: one label, or one for each value in a list."""
    if isinstance(value, list):
        yield from ((f"{key}={_label(each)}", {key: each}) for each in value)
    elif isinstance(value, Mapping):
        yield key, dict(value)
    else:
        raise InputError(f"grid.{name}.{key} should be a table or a list of values, not {value!r}.")


def _unfolded(label: str, value: Any) -> Iterator[tuple[str, Any]]:
    """TOML reads `training.lr = [0.1, 0.01]` as a table in a table: such a one is a setting, not a label."""
    fields = Spec.model_fields
    nested = isinstance(value, Mapping) and label.partition(".")[0] in fields
    if nested and value and not any(key.partition(".")[0] in fields for key in value):
        for key, each in value.items():
            yield from _unfolded(f"{label}.{key}", each)
    else:
        yield label, value


def _labelled(name: str, choices: Sequence[tuple[str, Table]], key: str = "") -> Axis:
    if not choices:
        raise InputError(f"grid.{name} has no values.")
    labels = [label for label, _ in choices]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"grid.{name} has {twice!r} twice.")
    return Axis({label: layers.expand(changes) for label, changes in choices}, key)


def _label(value: Any) -> str:
    """A value as a label: as one would type it, and a choice in words."""
    if isinstance(value, Mapping) and "name" in value:
        return describe_choice(value)
    return value if isinstance(value, str) else json.dumps(value)
