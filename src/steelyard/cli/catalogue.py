"""The command `steelyard list`."""

from typing import Annotated, Any

import typer

from steelyard.cli.shared import Json, guarded, show_values
from steelyard.errors import InputError, unknown

# The families of components (not imported here, because it is slow), and what is no family.
KINDS = {
    "presets": "experiments that are ready to run",
    "weighing": "how much each client counts",
    "combining": "how updates are merged",
    "objectives": "what a client minimises",
    "sharing": "what travels",
    "training": "settings of local training",
    "schedules": "of the learning rate",
    "server": "settings of the server",
    "datasets": "built-in data sets",
    "partitions": "how data are dealt to clients",
    "shifts": "how inputs differ from client to client",
    "models": "built-in models",
    "attacks": "what hostile clients do",
    "engines": "where clients are simulated",
    "observers": "where rounds are shown or kept besides the record",
    "metrics": "metrics that a spec can add",
    "scores": "what the figures in the record mean",
}


@guarded
def list_(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help=f"{', '.join(KINDS)}.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List what a spec can name, with settings and defaults; without KIND, the kinds that there are.

    A spec can also name your own rules, objectives, models and the rest: [cyan]my_package.module:factory[/].

    [dim]Examples:[/]

        steelyard list presets
        steelyard list weighing
        steelyard list training
    """
    from steelyard.report.terminal import catalogue
    from steelyard.specs import registry
    from steelyard.specs.sources import presets

    if kind is not None and kind not in KINDS:
        raise _unknown_kind(kind)
    if kind is None:
        kinds = [{"name": name, "about": about} for name, about in KINDS.items()]
        heads = ("kind", "what it is")
        show_values({"kinds": kinds}, lambda: catalogue("kinds", list(KINDS.items()), heads), as_json)
    elif kind == "presets":
        members = [{"name": name, "about": table.get("about", "")} for name, table in presets().items()]
        rows = [(member["name"], member["about"]) for member in members]
        show_values(
            {"presets": members}, lambda: catalogue("presets", rows, ("preset", "what it is")), as_json
        )
    elif kind in ("training", "server"):
        _list_settings(kind, as_json)
    elif kind == "scores":
        from steelyard.report.metric_words import SCORES

        found = [{"name": name, "about": about} for name, about in SCORES.items()]
        words = list(SCORES.items())
        show_values({kind: found}, lambda: catalogue(kind, words, ("score", "what it is")), as_json)
    else:
        members = registry.describe(kind)
        lines = [(member["name"], _assignments(member["settings"]), member["about"]) for member in members]
        headings = ("name", "settings", "what it does")
        show_values({kind: members}, lambda: catalogue(kind, lines, headings), as_json)


def _list_settings(kind: str, as_json: bool) -> None:
    """The settings of local training, or of the server, with their defaults."""
    from steelyard.report.terminal import catalogue
    from steelyard.settings import Server, Training
    from steelyard.specs.field_docs import settings_table

    members = settings_table(kind, Training if kind == "training" else Server)
    rows = [
        (each["name"], "none" if each["default"] is None else str(each["default"]), each["about"])
        for each in members
    ]
    headings = ("setting", "default", "what it is")
    show_values({kind: members}, lambda: catalogue(kind, rows, headings), as_json)


def _unknown_kind(kind: str) -> InputError:
    """The error for `list rules`: it names every kind of rule. Other words get the nearest kind."""
    from steelyard import components

    noun = kind.removesuffix("s")
    kinds = [name for name, family in components.FAMILIES.items() if noun in family.noun.split()]
    if not kinds:
        return unknown("kind", kind, KINDS)
    return InputError(f"unknown kind {kind!r}: did you mean {' or '.join(map(repr, kinds))}?")


def _assignments(settings: dict[str, Any]) -> str:
    """Settings as `key=value` overrides."""
    values = {name: value["name"] if isinstance(value, dict) else value for name, value in settings.items()}
    return " ".join(f"{name}={'none' if value is None else value}" for name, value in values.items())
