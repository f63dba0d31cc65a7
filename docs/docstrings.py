"""Signatures as they are in the source, and docstrings, as Markdown."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

WIDTH, INLINE = 180, 100  # characters of a line of text, and of a signature in one line


class Source:
    """The source of a function or a class."""

    def __init__(self, thing: Any) -> None:
        self.text = textwrap.dedent(inspect.getsource(thing))
        self.module = sys.modules[thing.__module__]
        (self.node,) = ast.parse(self.text).body

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """The functions of a class; a function itself."""
        nodes = self.node.body if isinstance(self.node, ast.ClassDef) else [self.node]
        return {each.name: each for each in nodes if isinstance(each, ast.FunctionDef)}

    def parameter(self, argument: ast.arg, default: ast.expr | None = None, stars: str = "") -> str:
        return f"{stars}{self.part(argument)}{self.default(default)}"

    def parameters(self, function: ast.FunctionDef) -> list[str]:
        given = function.args
        without = len(given.args) - len(given.defaults)
        parts = list(map(self.parameter, given.args, [None] * without + given.defaults))
        if given.vararg or given.kwonlyargs:
            parts.append(self.parameter(given.vararg, None, "*") if given.vararg else "*")
        parts += map(self.parameter, given.kwonlyargs, given.kw_defaults)
        parts += [self.parameter(given.kwarg, None, "**")] if given.kwarg else []
        return [part for part in parts if part != "self"]

    def fields(self) -> list[str]:
        """The fields of a dataclass as parameters."""
        assert isinstance(self.node, ast.ClassDef)
        fields = [each for each in self.node.body if isinstance(each, ast.AnnAssign)]
        return [
            f"{self.part(each.target)}: {self.part(each.annotation)}{self.default(each.value)}"
            for each in fields
            if "init=False" not in self.part(each)
        ]

    def default(self, value: ast.expr | None) -> str:
        if isinstance(value, ast.Call) and self.part(value.func) == "field":
            value = next((each.value for each in value.keywords if each.arg == "default"), ast.Dict([], []))
        if isinstance(value, ast.Name):  # a constant
            constant = getattr(self.module, value.id)
            return f" = {constant!r}" if isinstance(constant, int | float | str) else " = {}"
        return "" if value is None else f" = {self.part(value) or '{}'}"

    def part(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ""


def signature(call: str, thing: Any) -> Iterator[str]:
    """How a function is called, or an object of a class is made, as a block; nothing if that says nothing."""
    source = Source(thing)
    function = source.functions.get("__init__" if inspect.isclass(thing) else thing.__name__)
    parts = source.parameters(function) if function else source.fields()
    returns = source.part(function.returns) if function and function.returns else ""
    end = ")" if returns in ("", "None") else f") -> {returns}"
    line = f"{call}({', '.join(parts)}{end}"
    if parts:
        long = [f"{call}(", *(f"    {part}," for part in parts), end]
        yield from ["```python", *([line] if len(line) <= INLINE else long), "```", ""]


def paragraphs(docs: str | None) -> Iterator[str]:
    """A docstring: its paragraphs, a list of its arguments, its examples as blocks."""
    for block in inspect.cleandoc(docs or "").split("\n\n"):
        if block.startswith(">>>"):
            yield from ["```pycon", *block.splitlines(), "```"]
        elif block.startswith("Args:"):
            for item in re.split(r"\n(?=    \S)", block)[1:]:
                name, _, words = in_line(item).partition(": ")
                yield from wrapped(f"* `{name}`: {words}")
        else:
            yield from wrapped(in_line(block))
        yield ""


def in_line(text: str | None) -> str:
    return " ".join((text or "").split())


def wrapped(line: str) -> list[str]:
    """Text in lines; those of a list item after the first are indented."""
    indent = "  " if line.startswith("* ") else ""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def table(titles: str, rows: Iterable[Iterable[str]]) -> list[str]:
    line = "|".join("---" for _ in titles.split("|"))
    return [f"| {titles} |", f"|{line}|", *(f"| {' | '.join(row)} |" for row in rows)]
