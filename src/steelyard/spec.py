"""The experiment file: what a run is, validated, with every default filled in.

Layers, the later winning: defaults < preset < file < `key=value` overrides.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from steelyard import registry
from steelyard.aggregation import Server
from steelyard.errors import InputError, unknown
from steelyard.optimizers import Training

Table = dict[str, Any]


def choice(family: str) -> BeforeValidator:
    """A field that names a member of a family: `"samples"` or `{name = "samples", cap = 3}`."""

    def complete(value: Any) -> Table:
        table = {"name": value} if isinstance(value, str) else value
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            raise InputError(f"should be a name or a table with a name, not {value!r}")
        return registry.complete(family, table)

    return BeforeValidator(complete)


def settings(name: str, factory: type) -> BeforeValidator:
    """A field that holds the settings of a dataclass."""

    def complete(value: Any) -> Table:
        if not isinstance(value, Mapping):
            raise InputError(f"should be a table, not {value!r}")
        return registry.resolve(name, factory, value)

    return BeforeValidator(complete)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Data(Section):
    """Which data, and who holds what."""

    dataset: Annotated[Table, choice("datasets")] = {"name": "digits"}
    clients: int = Field(10, ge=1)
    partition: Annotated[Table, choice("partitions")] = {"name": "dirichlet", "alpha": 0.3}
    shift: Annotated[Table, choice("shifts")] | None = None
    seed: int | None = None
    """Deals the data; follows the training seed unless it is set."""


class Spec(Section):
    """A whole experiment."""

    name: Annotated[str, Field(pattern=r"^[\w.+-]+$")] = "fedavg"
    about: str = ""
    seed: int = 0
    rounds: int = Field(30, ge=1)
    clients_per_round: int | None = Field(None, ge=1)
    evaluate_every: int = Field(1, ge=1)
    patience: int | None = Field(None, ge=1)
    data: Data = Data()
    model: Annotated[Table, choice("models")] = {"name": "mlp"}
    objective: Annotated[Table, choice("objectives")] = {"name": "cross-entropy"}
    sharing: Annotated[Table, choice("sharings")] = {"name": "whole-model"}
    weighing: Annotated[Table, choice("rules")] = {"name": "samples"}
    combining: Annotated[Table, choice("combiners")] = {"name": "mean"}
    training: Annotated[Table, settings("training", Training)] = {}
    server: Annotated[Table, settings("server", Server)] = {}

    def to_toml(self) -> str:
        return tomli_w.dumps(_without_none(self.model_dump()))

    def fingerprint(self) -> str:
        """The same for two specs that describe the same computation."""
        content = self.model_dump(exclude={"name", "about"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def load_spec(
    source: str | Path | Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None
) -> Spec:
    """The spec of a preset's name, a TOML file or a table, with overrides such as {"data.clients": 20}."""
    table = _read(source)
    layers = [presets()[table.pop("preset")]] if "preset" in table else []
    merged: Table = Spec().model_dump()
    for layer in (*layers, table, expand(overrides or {})):
        merged = merge(merged, layer)
    if isinstance(merged["data"], dict) and merged["data"].get("seed") is None:
        merged["data"]["seed"] = merged["seed"]
    try:
        return Spec.model_validate(merged)
    except ValidationError as error:
        raise _explain(error) from None


def presets() -> dict[str, Table]:
    """The presets by name."""
    files = (each for each in resources.files("steelyard.presets").iterdir() if each.name.endswith(".toml"))
    tables = {Path(each.name).stem: tomllib.loads(each.read_text("utf-8")) for each in files}
    return dict(sorted(tables.items()))


def merge(base: Table, over: Mapping[str, Any]) -> Table:
    """`over` on top of `base`, table by table; another name drops the settings of the one it replaces."""
    merged = dict(base)
    for key, value in over.items():
        under = merged.get(key)
        if isinstance(under, dict) and "name" in under and isinstance(value, str):
            value = {"name": value}
        if (
            isinstance(under, dict)
            and isinstance(value, Mapping)
            and under.get("name") == value.get("name", under.get("name"))
        ):
            merged[key] = merge(under, value)
        else:
            merged[key] = value
    return merged


def expand(overrides: Mapping[str, Any]) -> Table:
    """{"data.clients": 20} → {"data": {"clients": 20}}."""
    table: Table = {}
    for key, value in overrides.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        table = merge(table, value)
    return table


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` with a TOML value; what is not TOML is a string, and `none` unsets."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"{text!r} is not of the form key=value, such as rounds=50 or training.lr=0.1.")
    if value == "none":
        return key, None
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _read(source: str | Path | Mapping[str, Any] | None) -> Table:
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return dict(source)
    path = Path(source)
    if path.suffix != ".toml":
        known = presets()
        if str(source) not in known:
            raise unknown("preset", str(source), known)
        return known[str(source)]
    try:
        text = path.read_text("utf-8")
        return {"name": path.stem, **tomllib.loads(text)}
    except OSError as error:
        raise InputError(f"cannot read the spec {path}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the spec {path} is not valid TOML: {error}.") from None


def _explain(error: ValidationError) -> InputError:
    """The first thing that is wrong with a spec, in one sentence."""
    first = error.errors()[0]
    *parents, key = (str(part) for part in first["loc"])
    where = ".".join([*parents, key])
    if first["type"] == "extra_forbidden":
        fields = (Data if parents == ["data"] else Spec).model_fields
        return unknown("key", where, [".".join([*parents, field]) for field in fields])
    if isinstance(cause := first.get("ctx", {}).get("error"), InputError):
        return InputError(str(cause) if where in str(cause) else f"{where}: {cause}")
    return InputError(f"{where} {registry.expectation(error)}, not {first['input']!r}.")


def _without_none(table: Mapping[str, Any]) -> Table:
    """TOML has no null: what is not set is left out."""
    kept = {key: value for key, value in table.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in kept.items()}
