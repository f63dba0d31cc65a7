"""Axes of a grid, read from a table of a grid file or from `key=value,value` on the command line."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.errors import InputError
from steelyard.runs.summary import describe_choice
from steelyard.specs import sources
from steelyard.specs.schema import Spec
from steelyard.specs.sources import Table

Choices = Mapping[str, Any] | str
"""An axis as a table of a grid file, or as text: "weighing=samples,uniform"."""


@dataclass(frozen=True)
class Axis:
    """One axis of a grid: labels, and the settings that each label changes."""

    choices: Mapping[str, Table]
    key: str = ""
    """The setting that varies, if there is only one and the labels are its values."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.choices)


NOTHING = Axis({"": {}})


def read_axis(name: str, choices: Choices) -> Axis:
    """An axis from a table or from `key=value,value`."""
    if isinstance(choices, str):
        return _parse_axis(name, choices)
    if not isinstance(choices, Mapping):
        raise InputError(f"grid.{name} should be a table of labels or settings, not {choices!r}.")
    entries = [entry for label, value in choices.items() for entry in _flattened(label, value)]
    lists = [(key, value) for key, value in entries if isinstance(value, list)]
    if len(lists) == len(entries) == 1:
        key, values = lists[0]
        return _labelled(name, [(_label(value), {key: value}) for value in values], key)
    return _labelled(name, [choice for key, value in entries for choice in _alternatives(name, key, value)])


def check_apart(axes: Mapping[str, Axis]) -> None:
    """Refuse a setting whose values on one axis have no effect, because every label of a later one sets it.

    Some labels may do so: `none = { "adversaries.count" = 0 }` beside panels that vary the count. Axes are in
    the order in which they are merged.
    """
    for (name, axis), (later, over) in itertools.combinations(axes.items(), 2):
        always = set.intersection(*(set(_settings(table)) for table in over.choices.values()))
        for setting in (key for table in axis.choices.values() for key in _settings(table)):
            if setting in always:
                raise InputError(f"{setting} is on the {name} and the {later} of the grid: take one of them.")


def _settings(table: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """The dotted keys of all values in a table; the name of a choice counts as the choice itself."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{place}{key}.")
        else:
            yield f"{place}{key}".removesuffix(".name")


def _parse_axis(name: str, text: str) -> Axis:
    """`data.partition=iid,shards`; commas within brackets and braces do not separate values."""
    key, equals, values = text.partition("=")
    parts = re.split(r",(?![^\[{]*[\]}])", values)
    if not key or not equals or not all(parts):
        example = "weighing=samples,uniform"
        raise InputError(f"--{name} takes a setting and its values, such as {example}, not {text!r}.")
    return _labelled(name, [(part, dict([sources.parse_override(f"{key}={part}")])) for part in parts], key)


def _alternatives(name: str, key: str, value: Any) -> Iterator[tuple[str, Table]]:
    """The labels of one entry of an axis: the entry's own, or one for each value in a list."""
    if isinstance(value, list):
        yield from ((f"{key}={_label(option)}", {key: option}) for option in value)
    elif isinstance(value, Mapping):
        yield key, dict(value)
    else:
        raise InputError(f"grid.{name}.{key} should be a table or a list of values, not {value!r}.")


def _flattened(label: str, value: Any) -> Iterator[tuple[str, Any]]:
    """TOML reads `training.lr = [0.1, 0.01]` as nested tables: join them to one dotted key."""
    fields = Spec.model_fields
    nested = isinstance(value, Mapping) and label.partition(".")[0] in fields
    if nested and value and not any(key.partition(".")[0] in fields for key in value):
        for key, inner in value.items():
            yield from _flattened(f"{label}.{key}", inner)
    else:
        yield label, value


def _labelled(name: str, choices: Sequence[tuple[str, Table]], key: str = "") -> Axis:
    if not choices:
        raise InputError(f"grid.{name} has no values.")
    labels = [label for label, _ in choices]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"grid.{name} has {twice!r} twice.")
    return Axis({label: sources.expand(changes) for label, changes in choices}, key)


def _label(value: Any) -> str:
    """A value as it is typed on the command line; a choice with settings as "dirichlet (alpha 0.1)"."""
    if isinstance(value, Mapping) and "name" in value:
        return describe_choice(value)
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value)
