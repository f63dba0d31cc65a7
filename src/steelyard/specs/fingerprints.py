"""A hash that is equal for specs that describe the same computation, and different for all others."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from steelyard.devices import kind_of
from steelyard.engines.vectorized import MIN_GROUP
from steelyard.specs import gate, registry
from steelyard.specs.source_code import source_hash

DEFAULTS = 2
"""Raise this number when a default changes, or what it means: settings at their default are not part of the
hash, so old runs would pass for new ones. A new setting that is off by default needs no new number."""

CHOICES = {
    "engine": "engines",
    "data.dataset": "datasets",
    "data.partition": "partitions",
    "data.shift": "shifts",
    "adversaries.attack": "attacks",
    "model": "models",
    "objective": "objectives",
    "training.schedule": "schedules",
    "sharing": "sharing",
    "weighing": "weighing",
    "combining": "combining",
    "metrics": "metrics",
    "observers": "observers",
}
"""Settings of a spec that are choices, or lists or tables of choices, and their families."""

SAME_BITS = ("serial", "pool")
NO_EFFECT = ("name", "about", "engine", "spill", "round_seconds", "observers")

Table = Mapping[str, Any]


def fingerprint(spec: Table, defaults: Table) -> str:
    """The hash of a complete spec: its settings that are not defaults, and the code that it names."""
    content = {key: value for key, value in changed(spec, defaults).items() if key not in NO_EFFECT}
    if not spec["adversaries"]["count"]:
        content.pop("adversaries", None)  # the attack has no effect
    content |= _engine(spec)
    code = {name: source_hash(name) for name in gate.code_names(content)}
    return hashlib.sha256(json.dumps([DEFAULTS, content, code], sort_keys=True).encode()).hexdigest()[:16]


def changed(spec: Table, defaults: Table, place: str = "") -> dict[str, Any]:
    """The settings of a complete spec that are not at their default; a changed choice keeps its name."""
    found: dict[str, Any] = {}
    for key, value in spec.items():
        if key in defaults and value == defaults[key]:
            continue
        if (path := f"{place}{key}") in CHOICES and isinstance(value, list):
            found[key] = [registry.essential(CHOICES[path], each) for each in value]
        elif path == "metrics":
            found[key] = {name: registry.essential(CHOICES[path], each) for name, each in value.items()}
        elif path in CHOICES and value is not None:
            found[key] = registry.essential(CHOICES[path], value)
        elif isinstance(value, Mapping):
            found[key] = changed(value, defaults.get(key) or {}, f"{path}.")
        else:
            found[key] = value
    return found


def _engine(spec: Table) -> dict[str, Any]:
    """The engine, if it may give other bits than `serial`.

    `auto` trains clients together, like `vectorized`, only if many of them take part in a round. Whether it
    does also depends on model and data, which are not built here: with many clients it counts as another.
    `ray` counts as the engine of its nodes.
    """
    choice = registry.essential("engines", spec["engine"])
    if choice["name"] == "ray":
        choice = {"name": choice.get("node", "pool")}
    adversaries = spec["adversaries"]["count"] if spec["adversaries"]["extra"] else 0
    invited = spec["clients_per_round"] or spec["data"]["clients"] + adversaries
    few = choice["name"] == "auto" and invited < 2 * MIN_GROUP  # see engines.vectorized.pays
    device, threads = kind_of(choice.get("device", "cpu")), choice.get("threads", 1)
    several = {} if threads == 1 else {"threads": threads}  # with several, `auto` is serial or a pool
    if device != "cpu":  # there `auto` is serial
        name = "serial" if choice["name"] == "auto" else choice["name"]
        return {"engine": {"name": name, "device": device, **several}}
    if several:
        return {"engine": several}
    if choice["name"] in SAME_BITS or few:
        return {}
    return {"engine": {key: value for key, value in choice.items() if key != "workers"}}
