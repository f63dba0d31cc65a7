"""Components by name: `"majority"` or `{"name": "krum", "f": 2}`, in specs and wherever Python takes one.

A family is a module, and its members are the names in the module's `__all__`. A member's signature is its
schema: the run provides some arguments (the context); all others are settings, checked against their
annotations. `"my.module:factory"` names a member outside the package.
"""

import importlib
import inspect
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, get_args

from steelyard.annotations import hints_of, is_plain, plain_default, validated
from steelyard.errors import MAX_HINTS, InputError, nearest, unknown
from steelyard.importing import Factory, leads_to_code, load
from steelyard.texts import kebab

Choice = str | Mapping[str, Any]
"""A name, or a table with a name and settings."""

QUESTIONS = ("objectives", "sharing", "weighing", "combining")
"""The families whose members make an algorithm."""


@dataclass(frozen=True)
class Family:
    """A kind of component that has names."""

    noun: str
    module: str
    context: frozenset[str] = frozenset()
    """Arguments that the run provides."""
    hyphens: bool = True
    """Whether the words of a name are separated in specs: GeometricMedian is geometric-median."""
    functions: bool = False
    """Whether a setting of this family may also be a function, such as a loss, which becomes a member."""


FAMILIES: Mapping[str, Family] = types.MappingProxyType(
    {
        "objectives": Family("objective", "steelyard.objectives", functions=True),
        "schedules": Family("schedule", "steelyard.schedules", functions=True),
        "sharing": Family("sharing rule", "steelyard.sharing"),
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
        "observers": Family("observer", "steelyard.observers", hyphens=False),
        "metrics": Family("metric", "steelyard.metrics.named", frozenset({"num_classes"})),
        "models": Family("model", "steelyard.nn.zoo", frozenset({"input_shape", "num_classes", "client"})),
    }
)


def names(family: str) -> dict[str, Factory]:
    """The members of a family, by the names that specs use."""
    module = importlib.import_module(FAMILIES[family].module)
    members = {name: getattr(module, name) for name in module.__all__}
    spelled = kebab if FAMILIES[family].hyphens else str.lower
    return {
        spelled(name): member for name, member in sorted(members.items()) if not inspect.isabstract(member)
    }


def find(family: str, name: str) -> Factory:
    """The member with this name, or the factory that `"module:factory"` names."""
    if leads_to_code(name):
        return load(FAMILIES[family].noun, name)
    members = names(family)
    if name not in members:
        raise _unknown_name(family, name, members)
    return members[name]


def _unknown_name(family: str, name: str, members: Mapping[str, Factory]) -> InputError:
    """The error for a name that no member has; it may be the name of another part of an algorithm."""
    others = [each for each in QUESTIONS if family in QUESTIONS and name in names(each)]
    if others:
        belongs = others[0].replace("objectives", "objective")
        return InputError(f"unknown {FAMILIES[family].noun} {name!r}: it belongs to `{belongs}`.")
    return unknown(FAMILIES[family].noun, name, members)


def context_of(family: str, choice: Mapping[str, Any]) -> frozenset[str]:
    """The arguments of a choice that the run provides."""
    parameters = inspect.signature(find(family, choice["name"])).parameters
    return FAMILIES[family].context & frozenset(parameters)


def settings_of(factory: Factory, context: frozenset[str] = frozenset()) -> dict[str, inspect.Parameter]:
    """The parameters of a factory that a spec may set: all but those in the context."""
    parameters = inspect.signature(factory).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one.name: one for one in parameters if one.kind in kinds and one.name not in context}


def resolve(
    what: str,
    factory: Factory,
    settings: Mapping[str, Any],
    family: str | None = None,
    imports: bool = True,
) -> dict[str, Any]:
    """Settings, checked and completed with defaults, as plain values that a spec can store."""
    context = frozenset() if family is None else FAMILIES[family].context
    known, hints = settings_of(factory, context), hints_of(factory)
    parameters = inspect.signature(factory).parameters.values()
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for key in settings:
        if key not in known and not open_ended:
            raise _unknown_setting(what, key, known, family)
    resolved = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and "name" not in value and key in known:
            value = {**_named(plain_default(known[key].default)), **value}
        resolved[key] = _checked(_place(what, key), value, hints.get(key, Any), imports)
    for key, parameter in known.items():
        if key not in resolved and parameter.default is parameter.empty:
            raise InputError(f"{what} needs the setting {key!r}.")
        if key not in resolved and is_plain(default := plain_default(parameter.default)):
            resolved[key] = default
    return resolved


def _unknown_setting(what: str, key: str, known: Iterable[str], family: str | None) -> InputError:
    """The error for a setting that a component does not have; other members of its family may have it."""
    if family is None or nearest(key, known):
        return unknown("setting", key, known, of=what)
    context = FAMILIES[family].context
    owners = [name for name, member in names(family).items() if key in settings_of(member, context)]
    if owners:
        more = " and others" if len(owners) > MAX_HINTS else ""
        return InputError(
            f"{what} has no setting {key!r}: it is a setting of {', '.join(owners[:MAX_HINTS])}{more}."
        )
    return unknown("setting", key, known, of=what)


def as_choice(where: str, value: Any) -> Mapping[str, Any]:
    """`"samples"` is short for `{name = "samples"}`."""
    choice = {"name": value} if isinstance(value, str) else value
    if not isinstance(choice, Mapping) or not isinstance(choice.get("name"), str):
        raise InputError(f"{where} should be a name or a table with a name, not {value!r}.")
    return choice


def complete(family: str, choice: Mapping[str, Any], imports: bool = True) -> dict[str, Any]:
    """A choice such as `{name = "proximal", mu = 0.1}`, checked and completed with defaults.

    Without `imports`, choices that lead to code outside the package are returned as they are.
    """
    kind, name = FAMILIES[family], choice["name"]
    if not imports and leads_to_code(name):
        return dict(choice)
    settings = {key: value for key, value in choice.items() if key != "name"}
    what = f"{kind.noun} {name!r}"
    return {"name": name, **resolve(what, find(family, name), settings, family, imports)}


def build(family: str, choice: Mapping[str, Any], **context: Any) -> Any:
    """Call the factory of a choice with its settings and those values of the context that it takes."""
    factory = find(family, choice["name"])
    hints, parameters = hints_of(factory), inspect.signature(factory).parameters
    arguments = {key: value for key, value in context.items() if key in parameters}
    for key, value in complete(family, choice).items():
        if key != "name":
            nested = family_of(hints.get(key)) if isinstance(value, Mapping) else None
            arguments[key] = build(nested, value) if nested else value
    return factory(**arguments)


def build_given(family: str, choice: Mapping[str, Any]) -> Any:
    """`build` for a choice from Python, where text for a number is a mistake; on a command line it is not."""
    _check_numbers(f"{FAMILIES[family].noun} {choice['name']!r}", choice, complete(family, choice))
    return build(family, choice)


def component(field: str, family: str, kind: type, value: Any) -> Any:
    """An object of a family: itself, or what a name or a table such as `{"name": "krum", "f": 2}` stands for.

    `kind` is the base class of the family, and `field` the argument that the value was given for.
    """
    if isinstance(value, kind):
        return value
    if isinstance(value, type):
        advice = f"write {value.__name__}()" if issubclass(value, kind) else f"give a {kind.__name__}"
        raise InputError(f"{field} is the class {value.__name__}, not an object of it: {advice}.")
    if not isinstance(value, str | Mapping):
        raise _wrong(field, f"a name, a table with a name, or an object of type {kind.__name__}", value)
    choice = as_choice(field, value)
    found = build_given(family, choice)
    if not isinstance(found, kind):
        made = type(found).__name__
        raise InputError(
            f"{field}: {choice['name']!r} returned an object of type {made}, not {kind.__name__}."
        )
    return found


def settings_object(field: str, kind: type, value: Any) -> Any:
    """An object of a dataclass of settings: itself, or one with the settings of a table."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise _wrong(field, f"a table of settings, or an object of type {kind.__name__}", value)
    settings = resolve(field, kind, value)
    _check_numbers(field, value, settings)
    return kind(**settings)


def _check_numbers(what: str, given: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
    """Refuse text, and truth values, that were read as numbers."""
    for key, value in given.items():
        found = resolved[key]
        if isinstance(value, Mapping) and isinstance(found, Mapping):
            _check_numbers(_place(what, key), value, found)
        elif isinstance(value, str | bool) and type(found) in {bool, int, float} - {type(value)}:
            wanted = "True or False" if isinstance(found, bool) else "a number"
            raise InputError(f"{_place(what, key)} must be {wanted}, not {value!r}.")


def choice_of(family: str, value: Any) -> dict[str, Any] | None:
    """A component as a spec stores it; None if it is not of the package, or its settings are not plain."""
    if type(value) not in names(family).values():
        return None
    choice: dict[str, Any] = plain_default(value)
    return choice if is_plain(choice) else None


def _wrong(field: str, wanted: str, value: Any) -> InputError:
    return InputError(f"{field} must be {wanted}, not {shorten(repr(value), 100)}.")


def _named(default: Any) -> Mapping[str, Any]:
    """The name of a default choice, so that `base.label_smoothing = 0.1` keeps the default `base`."""
    return {"name": default["name"]} if isinstance(default, Mapping) else {}


def _place(what: str, key: str) -> str:
    """Where a setting is: "training.lr", or "weighing rule 'samples': cap"."""
    return f"{what}.{key}" if what.isidentifier() else f"{what}: {key}"


def _checked(where: str, value: Any, annotation: Any, imports: bool) -> Any:
    """The value, validated against its annotation; a setting that is itself a choice is completed.

    From Python, such a setting may also be an object: it is left as it is.
    """
    if nested := _nested(annotation):
        family, kind = nested
        if isinstance(value, kind) or (FAMILIES[family].functions and callable(value)):
            return value
        return complete(family, as_choice(where, value), imports)
    return validated(where, value, annotation)


def family_of(annotation: Any) -> str | None:
    """The family whose base class the annotation is, or has: such a setting is itself a choice."""
    nested = _nested(annotation)
    return None if nested is None else nested[0]


def _nested(annotation: Any) -> tuple[str, type] | None:
    """A family and its base class, if the annotation is this class, or has it."""
    parts = get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    for part in parts:
        if inspect.isclass(part) and inspect.isabstract(part):
            for name, family in FAMILIES.items():
                if f"{part.__module__}.".startswith(f"{family.module}."):
                    return name, part
    return None
