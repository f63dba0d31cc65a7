"""Where the settings of a spec come from: presets, files and `key=value` overrides, merged in this order."""

import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from steelyard.errors import InputError, unknown
from steelyard.runs.folder import SPEC
from steelyard.specs import gate

Table = dict[str, Any]
Source = str | Path | Mapping[str, Any] | None


def read(source: Source, trust: gate.Permission = False) -> list[Table]:
    """The tables to merge for a preset's name, a TOML file or a table; later ones override earlier ones."""
    table = table_of(source, trust)
    if "grid" in table:
        file = "FILE" if isinstance(source, Mapping) else source
        raise InputError(f"this is a grid, not a single run: use `steelyard grid {file}`.")
    return [preset(table.pop("preset")), table] if "preset" in table else [table]


def table_of(source: Source, trust: gate.Permission = False) -> Table:
    """The table of a source, without its preset's settings; a preset's name becomes `{preset = name}`."""
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return dict(source)
    return read_file(Path(source), trust) if Path(source).suffix == ".toml" else {"preset": source}


def presets() -> dict[str, Table]:
    """The presets by name."""
    files = (
        file for file in resources.files("steelyard.specs.presets").iterdir() if file.name.endswith(".toml")
    )
    tables = {Path(file.name).stem: tomllib.loads(file.read_text("utf-8")) for file in files}
    return dict(sorted(tables.items()))


def preset(name: Any) -> Table:
    known, given = presets(), str(name)
    if given not in known and (re.search(r"[/\\*?]", given) or Path(given).exists()):
        raise _not_a_spec(Path(given))
    if given not in known:
        raise unknown("preset", given, known)
    return known[given]


def _not_a_spec(path: Path) -> InputError:
    """The error for a path that does not lead to a TOML file."""
    if not path.exists():
        return InputError(f"{path} is no preset, and there is no such file or folder.")
    if (path / SPEC).is_file():
        return InputError(f"{path} is the folder of a run: name the spec in it, {path / SPEC}.")
    return InputError(f"{path} is no spec: a spec is the name of a preset, or a file that ends with .toml.")


def read_file(path: Path, trust: gate.Permission = False) -> Table:
    """The table in a file; refused if it names code and is not trusted. Every file comes in here."""
    try:
        content = path.read_bytes()
        table = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the spec {path}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the spec {path} is not valid TOML: {error}.") from None
    gate.admit(path, content, table, trust)
    # The default name of a spec is its file's name.
    return {"name": re.sub(r"[^\w.+-]", "-", path.stem), **_with_none(table)}


def _with_none(table: Mapping[str, Any]) -> Table:
    """TOML has no null: as on the command line, "none" is None."""
    return {key: value if key in ("name", "about") else _none(value) for key, value in table.items()}


def _none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _with_none(value)
    if isinstance(value, list):
        return [_none(inner) for inner in value]
    return None if value == "none" else value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """`base` updated with `over`, recursively. A table with another `name` replaces the old one entirely."""
    merged = dict(base)
    for key, value in over.items():
        under = merged.get(key)
        # "samples" is short for {name = "samples"} wherever it meets a table.
        if isinstance(under, Mapping) and isinstance(value, str):
            value = {"name": value}
        if isinstance(under, str) and isinstance(value, Mapping):
            under = {"name": under}
        if isinstance(under, Mapping) and isinstance(value, Mapping) and _same(under, value):
            value = merge(under, value)
        merged[key] = value
    return merged


def _same(low: Mapping[str, Any], high: Mapping[str, Any]) -> bool:
    """Whether two tables can be merged: they do not name different components."""
    return "name" not in low or "name" not in high or low["name"] == high["name"]


def expand(overrides: Mapping[str, Any]) -> Table:
    """{"data.clients": 20} → {"data": {"clients": 20}}."""
    table: Table = {}
    for key, value in overrides.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        table = merge(table, value)
    return table


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` with a TOML value; `none` is None, and everything that is not TOML is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"{text!r} is not of the form key=value, such as rounds=50 or training.lr=0.1.")
    if value == "none":
        return key, None
    try:
        table = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key, value
    return key, table["value"] if len(table) == 1 else value
