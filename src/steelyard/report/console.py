"""The only way to the terminal: what clients and files say can neither control it nor set styles."""

import re
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # strings for the device
)
# What is left of a sequence without its escape character, such as "[2J", is harmless and stays visible.
# Control characters but newline and tab, marks that change the direction of text, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """The text without escape sequences and control characters."""
    return _UNSAFE.sub("", _SEQUENCES.sub("", text))


def escaped(text: str) -> str:
    r"""JSON or TOML with control characters written as \u001b: the same values, safe to print."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class SafeConsole(Console):
    """A console that writes every text as plain text; only renderables can have styles."""

    def __init__(self, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control is not None or not _UNSAFE.search(segment.text)
            yield segment if safe else segment._replace(text=plain(segment.text))
