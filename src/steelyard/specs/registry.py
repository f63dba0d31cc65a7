"""Names in a spec → the things they name.

A family is a module; its members are what the module lists in `__all__`, and a member's signature is its
schema: arguments that the run provides (the context) are filled in, all others are settings that a spec may
give, checked against their annotations. `"my.module:factory"` names a member outside the package.
"""

import dataclasses
import importlib
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError

from steelyard.errors import InputError, unknown

Factory = Callable[..., Any]


@dataclass(frozen=True)
class Family:
    """One kind of thing that a spec can name."""

    noun: str
    module: str
    context: frozenset[str] = frozenset()
    """Arguments that the run provides."""


FAMILIES: Mapping[str, Family] = types.MappingProxyType(
    {
        "objectives": Family("objective", "steelyard.objectives"),
        "sharing": Family("sharing", "steelyard.sharing"),
        "weighing": Family("weighing rule", "steelyard.weighing"),
        "combining": Family("combining rule", "steelyard.combining"),
        "attacks": Family("attack", "steelyard.attacks"),
        "engines": Family("engine", "steelyard.engines"),
        "datasets": Family("data set", "steelyard.data.sources"),
        "partitions": Family(
            "partition", "steelyard.data.partitions", frozenset({"labels", "groups", "clients", "generator"})
        ),
        "shifts": Family(
            "shift", "steelyard.data.shifts", frozenset({"images", "client", "clients", "generator"})
        ),
        "models": Family("model", "steelyard.nn.zoo", frozenset({"input_shape", "num_classes", "client"})),
    }
)


def names(family: str) -> dict[str, Factory]:
    """The members of a family by the names that specs use."""
    module = importlib.import_module(FAMILIES[family].module)
    members = {name: getattr(module, name) for name in module.__all__}
    return {
        _kebab(name): member for name, member in sorted(members.items()) if not inspect.isabstract(member)
    }


def find(family: str, name: str) -> Factory:
    """The member with this name, or the factory that `module:factory` points to."""
    if ":" in name:
        return _import(FAMILIES[family].noun, name)
    members = names(family)
    if name not in members:
        raise unknown(FAMILIES[family].noun, name, members)
    return members[name]


def settings_of(factory: Factory, context: frozenset[str] = frozenset()) -> dict[str, inspect.Parameter]:
    """What a spec may set: the parameters of a factory without those that the run provides."""
    parameters = inspect.signature(factory).parameters.values()
    named = (each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))
    return {each.name: each for each in named if each.name not in context}


def resolve(
    what: str, factory: Factory, settings: Mapping[str, Any], context: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Settings checked and completed with defaults, as plain values that a spec can store."""
    known, hints = settings_of(factory, context), _hints(factory)
    open_ended = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(factory).parameters.values())
    for key in settings:
        if key not in known and not open_ended:
            raise unknown("setting", key, known, of=what)
    resolved = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and "name" not in value and key in known:
            value = {**_named(_plain(known[key].default)), **value}
        resolved[key] = _checked(_place(what, key), value, hints.get(key, Any))
    for key, parameter in known.items():
        if key not in resolved and parameter.default is parameter.empty:
            raise InputError(f"{what} needs the setting {key!r}.")
        if key not in resolved and is_plain(default := _plain(parameter.default)):
            resolved[key] = default
    return resolved


def as_choice(where: str, value: Any) -> Mapping[str, Any]:
    """`"samples"` is short for `{name = "samples"}`."""
    choice = {"name": value} if isinstance(value, str) else value
    if not isinstance(choice, Mapping) or not isinstance(choice.get("name"), str):
        raise InputError(f"{where} should be a name or a table with a name, not {value!r}.")
    return choice


def complete(family: str, choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice such as `{name = "proximal", mu = 0.1}`, checked and completed with defaults."""
    kind, name = FAMILIES[family], choice["name"]
    settings = {key: value for key, value in choice.items() if key != "name"}
    return {"name": name, **resolve(f"{kind.noun} {name!r}", find(family, name), settings, kind.context)}


def build(family: str, choice: Mapping[str, Any], **context: Any) -> Any:
    """Call what a choice names with its settings and with whatever it asks for of the context."""
    factory = find(family, choice["name"])
    hints, asked = _hints(factory), inspect.signature(factory).parameters
    arguments = {key: value for key, value in context.items() if key in asked}
    for key, value in complete(family, choice).items():
        if key != "name":
            nested = _family_of(hints.get(key))
            arguments[key] = build(nested, value) if nested else value
    return factory(**arguments)


def describe(family: str) -> list[dict[str, Any]]:
    """What a family has to offer: name, what it does, and its settings with their defaults."""
    return [
        {
            "name": name,
            "about": (inspect.getdoc(member) or "").split("\n")[0],
            "settings": {
                key: None if each.default is each.empty else _plain(each.default)
                for key, each in settings_of(member, FAMILIES[family].context).items()
            },
        }
        for name, member in names(family).items()
    ]


def _named(default: Any) -> Mapping[str, Any]:
    """The name of a default choice, so that `base.label_smoothing = 0.1` alone means the default base."""
    return {"name": default["name"]} if isinstance(default, Mapping) else {}


def _place(what: str, key: str) -> str:
    """training.lr, but: weighing rule 'samples': cap."""
    return f"{what}.{key}" if what.isidentifier() else f"{what}: {key}"


def _checked(where: str, value: Any, annotation: Any) -> Any:
    """A value that fits its annotation; a setting that is itself a choice becomes a complete table."""
    if nested := _family_of(annotation):
        return complete(nested, as_choice(where, value))
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{where} {expectation(error)}, not {value!r}.") from None


def expectation(error: ValidationError) -> str:
    """What was expected, in few words: "should be a valid integer"."""
    message = error.errors()[0]["msg"].split(",")[0]
    return message.replace("Input should", "should").replace("String should", "should")


def is_plain(value: Any) -> bool:
    """Whether a spec can store it. Other defaults (a user's `activation=nn.ReLU`) stay in the code."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(each) for each in value)
    return value is None or isinstance(value, str | int | float | bool)


def _plain(default: Any) -> Any:
    """A default as a spec would write it: a rule becomes a table with its name and settings."""
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        fields = {field.name: _plain(getattr(default, field.name)) for field in dataclasses.fields(default)}
        return {"name": _kebab(type(default).__name__), **fields}
    return default


def _family_of(annotation: Any) -> str | None:
    """The family whose base class a setting is annotated with: such a setting is itself a choice."""
    if not (inspect.isclass(annotation) and inspect.isabstract(annotation)):
        return None
    matches = (
        key for key, family in FAMILIES.items() if annotation.__module__.startswith(f"{family.module}.")
    )
    return next(matches, None)


def _hints(factory: Factory) -> dict[str, Any]:
    """Annotations by name; a user's factory may have none, or some that only a type checker can read."""
    try:
        return get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except (NameError, TypeError):
        return {}


def _import(noun: str, name: str) -> Factory:
    path, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(path), attribute)
    except Exception as error:  # whatever a user's module does when it is imported
        raise InputError(f"{noun} {name!r} cannot be imported: {type(error).__name__}: {error}.") from error
    if not callable(found):
        raise InputError(f"{noun} {name!r} is not something that can be called.")
    return cast(Factory, found)


def _kebab(name: str) -> str:
    """GeometricMedian → geometric-median, ALittleIsEnough → a-little-is-enough, light_cnn → light-cnn."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).replace("_", "-").lower()
