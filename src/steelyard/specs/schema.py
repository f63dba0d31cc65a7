"""The experiment file: what a run is, validated, with every default filled in.

Layers, the later winning: defaults < preset < file < `key=value` overrides (`layers.py`).
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from steelyard.errors import InputError, unknown
from steelyard.settings import Server, Training
from steelyard.specs import registry
from steelyard.specs import sources as layers
from steelyard.specs.sources import Table


def choice(field: str, family: str) -> BeforeValidator:
    """A field that names a member of a family: `"samples"` or `{name = "samples", cap = 3}`."""

    def complete(value: Any) -> Table:
        return registry.complete(family, registry.as_choice(field, value))

    return BeforeValidator(complete)


def settings(name: str, factory: type) -> BeforeValidator:
    """A field that holds the settings of a dataclass."""

    def complete(value: Any) -> Table:
        if not isinstance(value, Mapping):
            raise InputError(f"{name} should be a table, not {value!r}.")
        return registry.resolve(name, factory, value)

    return BeforeValidator(complete)


def _file_name(name: str) -> str:
    """A run's folder is named after it."""
    if not re.fullmatch(r"[\w.+-]+", name):
        raise InputError(f"may have letters, digits and . _ + - only, not {name!r}.")
    return name


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, strict=True)


class Data(Section):
    """Which data, and who holds what."""

    dataset: Annotated[Table, choice("data.dataset", "datasets")] = {"name": "digits"}
    clients: int = Field(10, ge=1)
    partition: Annotated[Table, choice("data.partition", "partitions")] = {"name": "dirichlet", "alpha": 0.3}
    shift: Annotated[Table, choice("data.shift", "shifts")] | None = None
    holdout: float = Field(0.0, ge=0, lt=1)
    """The share of every client's training examples that is kept to find the model's temperature."""
    seed: int | None = None
    """Deals the data; follows the training seed unless it is set."""


class Adversaries(Section):
    """How many parties attack, and how."""

    count: int = Field(0, ge=0)
    attack: Annotated[Table, choice("adversaries.attack", "attacks")] = {"name": "sign-flip"}
    extra: bool = False
    """Whether they come besides the clients of the data, or are some of them, drawn from the data seed."""


class Spec(Section):
    """A whole experiment."""

    name: Annotated[str, AfterValidator(_file_name)] = "fedavg"
    about: str = ""
    seed: int = 0
    rounds: int = Field(30, ge=1)
    clients_per_round: int | None = Field(None, ge=1)
    evaluate_every: int = Field(1, ge=1)
    patience: int | None = Field(None, ge=1)
    round_seconds: float | None = Field(None, gt=0)
    """A deadline: clients that have not answered by then have failed in this round."""
    engine: Annotated[Table, choice("engine", "engines")] = {"name": "auto"}
    spill: bool = False
    """Keep what stays with clients between rounds in files of the run, not in memory."""
    data: Data = Data()
    adversaries: Adversaries = Adversaries()
    model: Annotated[Table, choice("model", "models")] = {"name": "mlp"}
    objective: Annotated[Table, choice("objective", "objectives")] = {"name": "cross-entropy"}
    sharing: Annotated[Table, choice("sharing", "sharing")] = {"name": "whole-model"}
    weighing: Annotated[Table, choice("weighing", "weighing")] = {"name": "samples"}
    combining: Annotated[Table, choice("combining", "combining")] = {"name": "mean"}
    training: Annotated[Table, settings("training", Training)] = {}
    server: Annotated[Table, settings("server", Server)] = {}

    @field_validator("adversaries")
    @classmethod
    def _no_more_than_clients(cls, value: Adversaries, info: ValidationInfo) -> Adversaries:
        data = info.data.get("data")
        if data is not None and not value.extra and value.count > data.clients:
            raise InputError(
                f"adversaries.count is {value.count}, but there are {data.clients} clients; take fewer, or "
                "adversaries.extra = true for parties of their own."
            )
        return value

    def to_toml(self) -> str:
        return tomli_w.dumps(_without_none(self.model_dump()))

    def fingerprint(self) -> str:
        """The same for two specs that describe the same computation."""
        content = self.model_dump(
            exclude={"name", "about", "engine", "spill", "round_seconds"}
        )  # how it runs, not what
        if not self.adversaries.count:
            del content["adversaries"]  # how nobody would attack
        if not self.data.holdout:
            del content["data"]["holdout"]  # as in runs from before there was such a setting
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


SECTIONS: Mapping[str, type[Section]] = {"data": Data, "adversaries": Adversaries}


def load_spec(
    source: str | Path | Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None
) -> Spec:
    """The spec of a preset's name, a TOML file or a table, with overrides such as {"data.clients": 20}."""
    merged: Table = Spec().model_dump()
    for layer in (*layers.read(source), layers.expand(overrides or {})):
        merged = layers.merge(merged, layer)
    if isinstance(merged["data"], dict) and merged["data"].get("seed") is None:
        merged["data"]["seed"] = merged["seed"]
    try:
        return Spec.model_validate(merged)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> InputError:
    """The first thing that is wrong with a spec, in one sentence."""
    first = error.errors()[0]
    *parents, key = (str(part) for part in first["loc"])
    where = ".".join([*parents, key])
    if first["type"] == "extra_forbidden":
        fields = SECTIONS.get(".".join(parents), Spec).model_fields
        return unknown("key", where, [".".join([*parents, field]) for field in fields])
    if isinstance(cause := first.get("ctx", {}).get("error"), InputError):
        return InputError(str(cause) if where in str(cause) else f"{where} {cause}")
    return InputError(f"{where} {registry.expectation(error)}, not {first['input']!r}.")


def _without_none(table: Mapping[str, Any]) -> Table:
    """TOML has no null: what is not set is left out."""
    kept = {key: value for key, value in table.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in kept.items()}
