"""What the annotation of a setting says of its values, and which values a spec can store."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from steelyard.errors import InputError
from steelyard.texts import kebab


def validated(where: str, value: Any, annotation: Any) -> Any:
    """The value, brought to the type of its annotation; refused if it has another one."""
    try:
        return _adapter(annotation).validate_python(value)
    except ValidationError as error:
        wanted = dict.fromkeys(map(_expectation, error.errors()))  # of each type that it may have
        raise InputError(f"{where} {' or '.join(wanted)}, not {value!r}.") from None


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    """What checks a value; of types that pydantic does not know, such as tensors, it checks the class."""
    try:
        return TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))


def expectation(error: ValidationError) -> str:
    """The expectation of a pydantic error, such as "should be a valid integer"."""
    return _expectation(error.errors()[0])


def _expectation(detail: Mapping[str, Any]) -> str:
    message = str(detail["msg"]).split(",")[0]
    return message.replace("Input should", "should").replace("String should", "should")


def is_plain(value: Any) -> bool:
    """Whether a spec can store the value. Other defaults (a user's `activation=nn.ReLU`) are not stored."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(inner) for inner in value)
    return value is None or isinstance(value, str | int | float | bool)


def plain_default(default: Any) -> Any:
    """A default as a spec stores it: a dataclass becomes a table with its name and settings."""
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        fields = {
            field.name: plain_default(getattr(default, field.name)) for field in dataclasses.fields(default)
        }
        return {"name": kebab(type(default).__name__), **fields}
    return default


def hints_of(factory: Callable[..., Any]) -> dict[str, Any]:
    """Annotations by parameter name; empty if they cannot be evaluated at run time."""
    try:
        return get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except (NameError, TypeError):
        return {}
