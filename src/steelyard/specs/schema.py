"""The spec: every setting of an experiment, validated, with all defaults filled in.

Settings come from defaults < preset < file < `key=value` overrides; the later win (`sources.py`).
"""

import re
from collections.abc import Iterator, Mapping
from textwrap import shorten
from typing import Annotated, Any, Literal

import numpy as np
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

from steelyard import annotations, components
from steelyard.errors import InputError, unknown
from steelyard.metrics.scores import Kind
from steelyard.settings import Server, Training
from steelyard.specs import fingerprints, gate, sources
from steelyard.specs.naming import named_after
from steelyard.specs.sources import Source, Table


def choice(field: str, family: str) -> BeforeValidator:
    """Validator of a field that names a member of a family: `"samples"` or `{name = "samples", cap = 3}`."""

    def complete(value: Any, info: ValidationInfo) -> Table:
        return components.complete(family, components.as_choice(field, value), _imports(info))

    return BeforeValidator(complete)


def choices(field: str, family: str) -> BeforeValidator:
    """Validator of a field that names members of a family; a single one need not be in a list."""

    def complete(value: Any, info: ValidationInfo) -> list[Table]:
        given = value if isinstance(value, list | tuple) else [value]
        named = [components.as_choice(field, each) for each in given]
        return [components.complete(family, each, _imports(info)) for each in named]

    return BeforeValidator(complete)


def choices_by_name(field: str, family: str) -> BeforeValidator:
    """Validator of a table of choices, each under a name of its own."""

    def complete(value: Any, info: ValidationInfo) -> dict[str, Table]:
        if not isinstance(value, Mapping):
            raise InputError(f'{field} should be a table of names, such as {{ f1 = "f1" }}, not {value!r}.')
        named = {name: components.as_choice(f"{field}.{name}", each) for name, each in value.items()}
        return {name: components.complete(family, each, _imports(info)) for name, each in named.items()}

    return BeforeValidator(complete)


def settings(name: str, factory: type) -> BeforeValidator:
    """Validator of a field that holds the settings of a dataclass."""

    def complete(value: Any, info: ValidationInfo) -> Table:
        if not isinstance(value, Mapping):
            raise InputError(f"{name} should be a table, not {value!r}.")
        found = components.resolve(name, factory, value, imports=_imports(info))
        if not gate.code_names(found):
            factory(**found)  # refuses settings that make no sense together
        return found

    return BeforeValidator(complete)


def _imports(info: ValidationInfo) -> bool:
    """Whether code outside the package may be imported to check its settings."""
    return bool((info.context or {}).get("imports", True))


def _file_name(name: str) -> str:
    """The name, if it is a valid part of a folder's name."""
    if not re.fullmatch(r"[\w.+=-]+", name):
        raise InputError(f"name may contain only letters, digits and . _ + = -, not {name!r}.")
    return name


class Section(BaseModel):
    """Base of the spec and its tables."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, strict=True)


class Data(Section):
    """The data set and how it is partitioned among clients."""

    dataset: Annotated[Table, choice("data.dataset", "datasets")] = {"name": "digits"}
    clients: int = Field(10, ge=1)
    partition: Annotated[Table, choice("data.partition", "partitions")] = {"name": "dirichlet", "alpha": 0.3}
    shift: Annotated[Table, choice("data.shift", "shifts")] | None = None
    holdout: float = Field(0.0, ge=0, lt=1)
    """Fraction of each client's training examples that is held out to fit the model's temperature."""
    seed: int | None = None
    """Seed of partition, shift and adversaries; equals the training seed unless it is set."""


class Adversaries(Section):
    """How many clients attack, and how."""

    count: int = Field(0, ge=0)
    attack: Annotated[Table, choice("adversaries.attack", "attacks")] = {"name": "sign-flip"}
    extra: bool = False
    """True: adversaries are added to the clients of the data. False: they are drawn from them."""


class TaskSettings(Section):
    """How the model is called and what the targets are, where that is not found by itself (`sy.Task`)."""

    targets: Kind | None = None
    """"classes", "labels", "numbers" or "loss"."""
    call: str | None = None
    """"module:function" of (model, inputs) that returns the outputs."""
    predictions: str | None = None
    """"module:function" of outputs that returns the tensor that loss and metrics are computed from."""
    class_dim: int | None = None
    """Where the classes are in predictions for tokens or pixels: 1 or -1."""
    ignore_index: int = -100
    """Tokens or pixels with this class number are not scored."""
    columns: list[str] | None = None
    """The columns of data frames in the order of the model's inputs, without targets; real sites need it."""


class Spec(Section):
    """All settings of an experiment."""

    name: Annotated[str, AfterValidator(_file_name)] = "fedavg"
    about: str = ""
    seed: int = 0
    rounds: int = Field(30, ge=1)
    clients_per_round: int | None = Field(None, ge=1)
    evaluate_every: int = Field(1, ge=1)
    validation: float | None = Field(None, gt=0, lt=1)
    """The share of its training data that each client holds out, to choose the best model by."""
    monitor: str | None = None
    """The metric by which the best model is chosen: by default accuracy, or mse, on validation data."""
    mode: Literal["min", "max"] | None = None
    """Whether a smaller or a larger value of it is better, where that is not known."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many evaluations without a better value of that metric."""
    round_seconds: float | None = Field(None, gt=0)
    """A deadline: clients that have not answered by then have failed in this round."""
    engine: Annotated[Table, choice("engine", "engines")] = {"name": "auto"}
    spill: bool = False
    """Keep the private state of clients in files between rounds, not in memory."""
    data: Data = Data()
    adversaries: Adversaries = Adversaries()
    model: Annotated[Table, choice("model", "models")] = {"name": "mlp"}
    objective: Annotated[Table, choice("objective", "objectives")] = {"name": "cross-entropy"}
    sharing: Annotated[Table, choice("sharing", "sharing")] = {"name": "whole-model"}
    weighing: Annotated[Table, choice("weighing", "weighing")] = {"name": "samples"}
    combining: Annotated[Table, choice("combining", "combining")] = {"name": "mean"}
    training: Annotated[Table, settings("training", Training)] = {}
    server: Annotated[Table, settings("server", Server)] = {}
    metrics: Annotated[dict[str, Table], choices_by_name("metrics", "metrics")] = {}
    """Metrics besides those that every run has, by the names that they get in the record."""
    task: TaskSettings = TaskSettings()
    observers: Annotated[list[Table], choices("observers", "observers")] = []
    """Where the rounds are shown or kept besides the record; they do not change the numbers."""

    @field_validator("adversaries")
    @classmethod
    def _no_more_than_clients(cls, value: Adversaries, info: ValidationInfo) -> Adversaries:
        data = info.data.get("data")
        if data is not None and not value.extra and value.count > data.clients:
            raise InputError(
                f"adversaries.count is {value.count}, but there are {data.clients} clients; take fewer, or "
                "set adversaries.extra = true to add them to the clients."
            )
        return value

    def to_toml(self) -> str:
        content = self.model_dump()
        return tomli_w.dumps(_storable(content, fingerprints.changed(content, Spec().model_dump())))

    def fingerprint(self) -> str:
        """A hash that is equal for specs that describe the same computation."""
        return fingerprints.fingerprint(self.model_dump(), Spec().model_dump())


SECTIONS: Mapping[str, type[Section]] = {"data": Data, "adversaries": Adversaries, "task": TaskSettings}


def load_spec(
    source: Source = None,
    overrides: Mapping[str, Any] | None = None,
    trust: gate.Permission = False,
    *,
    imports: bool = True,
) -> Spec:
    """The spec of a preset's name, a TOML file or a table, with overrides such as {"data.clients": 20}.

    A file that names code is refused without `trust`, see `gate`. Without `imports`, nothing is imported or
    refused: the settings of such code are not checked, and the spec can be shown but not run. Overrides are
    added to the name, see `naming`, unless they set it.
    """
    base: Table = Spec().model_dump()
    for layer in sources.read(source, trust if imports else True):
        base = sources.merge(base, layer)
    changes = sources.expand(overrides or {})
    if "preset" in changes:
        raise InputError("preset is not a setting: name it first, as in `run fedprox rounds=5`.")
    merged = sources.merge(base, changes)
    _check_plain(merged)
    if "name" not in changes:
        merged["name"] = named_after(base, merged)
    if isinstance(merged["data"], dict) and merged["data"].get("seed") is None:
        merged["data"]["seed"] = merged["seed"]
    try:
        return Spec.model_validate(merged, context={"imports": imports})
    except ValidationError as error:
        raise _explain(error, base) from None


def _check_plain(table: Mapping[Any, Any], where: str = "") -> None:
    """Refuse objects: a spec is also a file, and has names and numbers only."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            _check_plain(value, f"{where}{key}.")
        elif not annotations.is_plain(value) and not isinstance(value, np.generic):
            raise InputError(
                f"{where}{key} is an object, {shorten(repr(value), 100)}, but a spec has names and numbers "
                'only: give its name, or "my_module:name" of code of your own, or use sy.Federation.'
            )


def _explain(error: ValidationError, base: Table) -> InputError:
    """The first validation error, in one sentence; keys of the table `base` may be what was meant."""
    first = error.errors()[0]
    *parents, key = (str(part) for part in first["loc"])
    where = ".".join([*parents, key])
    if first["type"] == "extra_forbidden":
        fields = SECTIONS.get(".".join(parents), Spec).model_fields
        also = [key for key in _keys(base) if key != where]
        return unknown("key", where, [".".join([*parents, field]) for field in fields], also=also)
    if where in SECTIONS and first["type"] == "model_type":
        example = next(iter(SECTIONS[where].model_fields))
        found = repr(first["input"])
        return InputError(
            f"{where} should be a table, not {found}; set a key in it, such as {where}.{example}."
        )
    if isinstance(cause := first.get("ctx", {}).get("error"), InputError):
        return InputError(str(cause) if where.removesuffix("s") in str(cause) else f"{where}: {cause}")
    return InputError(f"{where} {annotations.expectation(error)}, not {first['input']!r}.")


def _keys(table: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The keys of a table and of all tables in it, such as "training" and "training.lr"."""
    for key, value in table.items():
        if not where or key != "name":
            yield where + key
        if isinstance(value, Mapping):
            yield from _keys(value, f"{where}{key}.")


def _storable(table: Mapping[str, Any], changed: Mapping[str, Any]) -> Table:
    """TOML has no null: settings that are None are left out, or "none" if that is not their default."""
    kept: Table = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = changed.get(key)
            kept[key] = _storable(value, inner if isinstance(inner, Mapping) else {})
        elif isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
            inner = changed.get(key) or [{}] * len(value)
            kept[key] = [_storable(*both) for both in zip(value, inner, strict=True)]
        elif value is not None or key in changed:
            kept[key] = "none" if value is None else value
    return kept
