"""The docstrings below the fields of a class, and a spec as text with the options that are not set."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w


def field_docs(kind: type) -> dict[str, str]:
    """{field: the docstring below it, in one line}; empty text for fields without one."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = _text(after)
    return found


def with_unset(toml: str, spec: Mapping[str, Any]) -> str:
    """A spec's TOML, with a comment such as `# patience = "none"` for each option that is not set."""
    stored, place = toml.splitlines(), ""
    unset = {".".join(table): names for table, names in _unset(spec)}
    headers = {line[1:-1] for line in stored if _is_header(line)}
    first = next((number for number, line in enumerate(stored) if _is_header(line)), len(stored))
    own = [_comment(name) for name in unset.get("", ())]
    lines = stored[:first]
    while lines and not lines[-1]:
        lines.pop()
    lines += [*own, ""]
    for line in stored[first:]:
        lines.append(line)
        if _is_header(line):
            place = line[1:-1]
            lines += [_comment(name) for name in unset.get(place, ()) if f"{place}.{name}" not in headers]
    return "\n".join(lines) + "\n"


def settings_table(place: str, kind: type) -> list[dict[str, Any]]:
    """The fields of a dataclass of settings: name, default and docstring."""
    docs = field_docs(kind)
    parameters = inspect.signature(kind).parameters
    return [
        {
            "name": f"{place}.{name}",
            "default": _default(parameters[name].default),
            "about": docs.get(name, ""),
        }
        for name in parameters
    ]


def _default(value: Any) -> Any:
    from steelyard.texts import kebab

    plain = value is None or isinstance(value, str | int | float | bool)
    return value if plain else kebab(type(value).__name__)


def _comment(name: str) -> str:
    return "# " + tomli_w.dumps({name: "none"}).strip()


def _is_header(line: str) -> bool:
    return re.fullmatch(r"\[[^\[\]]+\]", line) is not None


def _unset(
    table: Mapping[str, Any], place: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The tables of a spec, and the names in each of them whose value is None."""
    yield place, [name for name, value in table.items() if value is None]
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _unset(value, (*place, name))


def _text(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    return ""
