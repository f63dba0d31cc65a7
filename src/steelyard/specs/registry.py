"""What can be said of components in a list or a fingerprint of specs."""

import inspect
from collections.abc import Mapping
from typing import Any

from steelyard.annotations import hints_of, plain_default
from steelyard.components import FAMILIES, family_of, find, names, settings_of
from steelyard.importing import leads_to_code


def essential(family: str, choice: Mapping[str, Any]) -> dict[str, Any]:
    """A complete choice without the settings that are at their default; nothing is imported."""
    if leads_to_code(choice["name"]):
        return dict(choice)
    factory = find(family, choice["name"])
    known, hints = settings_of(factory, FAMILIES[family].context), hints_of(factory)
    changed = {
        key: value
        for key, value in choice.items()
        if key not in known or value != plain_default(known[key].default)
    }
    for key, value in changed.items():
        if (nested := family_of(hints.get(key))) and isinstance(value, Mapping):
            changed[key] = essential(nested, value)
    return changed


def describe(family: str) -> list[dict[str, Any]]:
    """Each member of a family: its name, the first line of its docstring, its settings and their defaults."""
    return [
        {
            "name": name,
            "about": (inspect.getdoc(member) or "").split("\n")[0],
            "settings": {
                key: None if parameter.default is parameter.empty else plain_default(parameter.default)
                for key, parameter in settings_of(member, FAMILIES[family].context).items()
            },
        }
        for name, member in names(family).items()
    ]
