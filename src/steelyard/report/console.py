"""The only way to the terminal: what clients and files say can neither control it nor set styles."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from steelyard.texts import UNSAFE, plain


class SafeConsole(Console):
    """A console that writes every text as plain text; only renderables can have styles."""

    def __init__(self, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control is not None or not UNSAFE.search(segment.text)
            yield segment if safe else segment._replace(text=plain(segment.text))
