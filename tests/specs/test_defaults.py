"""Defaults are not part of fingerprints, so none may change unnoticed.

`python tests/specs/test_defaults.py` writes the file with all defaults anew.
"""

import json
from pathlib import Path
from typing import Any

from steelyard import components
from steelyard.specs import fingerprints, registry
from steelyard.specs.schema import Spec

FILE = Path(__file__).with_name("defaults.json")


def current() -> dict[str, Any]:
    """Every setting and its default: of each member of each family, and of a spec."""
    members = {
        f"{family}/{member['name']}": member["settings"]
        for family in components.FAMILIES
        for member in registry.describe(family)
    }
    found: dict[str, Any] = json.loads(json.dumps({**members, "spec": Spec().model_dump()}))
    return found


def test_no_default_has_changed_without_a_new_number() -> None:
    pinned = json.loads(FILE.read_text("utf-8"))
    assert pinned.pop("DEFAULTS") == fingerprints.DEFAULTS, f"write {FILE} anew: run this file as a program."
    found = current()
    changed = [
        f"{place}: {key} is {found[place].get(key)!r} and was {value!r}"
        for place, settings in pinned.items()
        if place in found
        for key, value in settings.items()
        if key in found[place] and found[place][key] != value
    ]
    assert not changed, (
        f"defaults have changed, so old runs would pass for runs with the new ones: {'; '.join(changed)}. "
        "Raise the number DEFAULTS in steelyard/specs/fingerprints.py, then run this file as a program."
    )
    assert found == pinned, (
        "settings were added or removed: run this file as a program. Raise the number DEFAULTS in "
        "steelyard/specs/fingerprints.py as well if results without these settings change."
    )


if __name__ == "__main__":
    content = {"DEFAULTS": fingerprints.DEFAULTS, **current()}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
