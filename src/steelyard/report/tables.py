"""Tables of numbers that fit the terminal: no number is cut, however narrow it is and long the names are."""

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

GAP = 2  # characters between columns
FOLDED = 24  # characters: names are not folded to less


class Block(NamedTuple):
    """Columns that are beside each other: their indices and widths, and the width of the names."""

    name_width: int
    columns: Sequence[int]
    widths: Sequence[int]


@dataclass(frozen=True)
class NumberTable:
    """Each row is a name and one cell for every other heading.

    On a narrow terminal headings wrap, names are folded, deviations go below their means, and columns that
    still do not fit are continued below.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    name_style: str = "bold"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, block in enumerate(self.blocks(options.max_width)):
            if number:
                yield ""
            yield self._table(block)

    def blocks(self, width: int) -> list[Block]:
        """All columns, as many beside each other as fit into `width` characters."""
        blocks: list[Block] = []
        left = list(range(1, len(self.headings)))
        while left or not blocks:
            counts = range(len(left), 0, -1)
            block = next((found for count in counts if (found := self._fitted(left[:count], width))), None)
            if block is None:  # not even one column fits: too wide is better than cut
                block = Block(min(self._longest, FOLDED), left[:1], [self._lows[i] for i in left[:1]])
            blocks.append(block)
            left = left[len(block.columns) :]
        return blocks

    def _fitted(self, columns: Sequence[int], width: int) -> Block | None:
        """These columns beside each other, as few of them folded as possible; None if they do not fit."""
        folded = min(self._longest, FOLDED)
        for all_widths, least in (
            (self._fulls, self._longest),
            (self._highs, self._longest),
            (self._highs, folded),
            (self._lows, folded),
        ):
            widths = [all_widths[column] for column in columns]
            room = width - sum(widths) - GAP * len(widths)
            if room >= least:
                return Block(min(room, self._longest), columns, widths)
        return None

    @cached_property
    def _longest(self) -> int:
        return max(len(text) for text in (self.headings[0], *(row[0] for row in self.rows)))

    @cached_property
    def _fulls(self) -> list[int]:
        """Widths of the columns if nothing is wrapped; in `_highs` headings are, and in `_lows` cells too."""
        return [max(high, len(head)) for high, head in zip(self._highs, self.headings, strict=True)]

    @cached_property
    def _highs(self) -> list[int]:
        return [self._width(column, lambda cell: [cell]) for column in range(len(self.headings))]

    @cached_property
    def _lows(self) -> list[int]:
        return [self._width(column, _parts) for column in range(len(self.headings))]

    def _width(self, column: int, parts: Callable[[str], Sequence[str]]) -> int:
        """Of the longest word of the heading or part of a cell."""
        cells = (part for row in self.rows for part in parts(row[column]))
        return max(len(part) for part in (*_lines(self.headings[column], 1), *cells))

    def _table(self, block: Block) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
        table.add_column(Text(_folded(self.headings[0], block.name_width)))
        for column, width in zip(block.columns, block.widths, strict=True):
            heading = Text("\n".join(_lines(self.headings[column], width)))
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
        for row in self.rows:
            cells = [
                row[column] if len(row[column]) <= width else "\n".join(_parts(row[column]))
                for column, width in zip(block.columns, block.widths, strict=True)
            ]
            table.add_row(Text(_folded(row[0], block.name_width), self.name_style), *map(Text, cells))
        return table


def _lines(heading: str, width: int) -> list[str]:
    """A heading in lines of at most `width` characters, if its words are not longer."""
    text = heading.replace(" %", "\u00a0%")
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _parts(cell: str) -> list[str]:
    """Where a cell may wrap: before a deviation, a bracket, or the next of several numbers."""
    return re.split(r" (?=[±/(])", cell)


def _folded(name: str, width: int) -> str:
    """A name in lines of at most `width` characters, which end at its signs if possible."""
    lines = [""]
    for piece in re.split(r"(?<=[+/,])|(?<=[^=] )(?!=)", name):
        if len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        for start in range(0, len(piece), width):
            part = piece[start : start + width]
            lines = [*lines, part] if start else [*lines[:-1], lines[-1] + part]
    return "\n".join(filter(None, map(str.rstrip, lines)))
