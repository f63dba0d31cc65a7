"""Grids on the terminal and as CSV: a progress bar while one runs, tables when it has finished."""

import csv
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from steelyard.report.progress import Headline, Pace, drawn
from steelyard.studies.grid_results import Entry, GridResults, Worst, number
from steelyard.texts import csv_text

LONGEST = 12  # characters in a line of a column's heading


@contextmanager
def cells_progress(console: Console, title: str) -> Iterator[Callable[[int, int], None]]:
    """A live progress bar. Yields the function to call with (runs done, runs in total)."""
    headline = Headline(title, "run", Pace(time.monotonic), waiting="checking every cell")
    with drawn(console, headline):
        yield headline.update


def grid_report(results: GridResults) -> RenderableType:
    """One table per panel; the last column has the worst value of each row."""
    metric, _, seeds = results.caption.partition(", ")
    parts: list[RenderableType] = [Text.assemble((metric, "bold"), (f"  {seeds}", "dim"))]
    if results.column_key:
        parts.append(Text(f"columns: {results.column_key}", "dim"))
    for panel in results.panels:
        parts += ["", Text(results.title(panel), "cyan")] if panel else [""]
        parts.append(_panel_table(results, panel))
    return Group(*parts)


def failures_report(failures: Sequence[tuple[str, str]], title: str = "failed") -> RenderableType:
    """The failed cells, given as (name, reason)."""
    lines = [Text.assemble((f"{name}  ", "bold"), reason) for name, reason in failures]
    return Group(Text(f"{title}: {len(failures)}", "bold red"), *lines)


def _panel_table(results: GridResults, panel: str) -> Table:
    """On a narrow terminal headings wrap, and deviations go below their means; row names do not wrap."""
    table = Table(
        box=None, pad_edge=False, header_style="dim", padding=(0, 2 if len(results.columns) < 8 else 1, 0, 0)
    )
    table.add_column(Text(results.row_key), no_wrap=True, min_width=max(map(len, results.rows)))
    for column in results.columns:
        entries = [results.entry(panel, row, column) for row in results.rows]
        widest = max(len("failed" if entry.error else number(entry.mean)) for entry in entries)
        heading = "\n".join(wrap(column, LONGEST))  # at hyphens, where it is long
        table.add_column(Text(heading, overflow="fold"), justify="right", min_width=widest)
    if results.has_worst:
        table.add_column("  worst", header_style="bold", no_wrap=True, min_width=14)
    for row in results.rows:
        entries = [results.entry(panel, row, column) for column in results.columns]
        cells = [_cell(entry) for entry in entries]
        worst = [_worst_text(results.worst(panel, row))] if results.has_worst else []
        table.add_row(Text(row), *cells, *worst)
    return table


def _cell(entry: Entry) -> Text:
    if entry.error:
        return Text("failed", "red")
    return Text.assemble(
        number(entry.mean), *([] if entry.sd is None else [(f" ±{number(entry.sd)}", "dim")])
    )


def _worst_text(worst: Worst | None) -> Text:
    if worst is None:
        return Text("–")
    value = ("failed", "bold red") if worst.value is None else (number(worst.value), "bold")
    return Text.assemble("  ", value, (f" {worst.column}", "dim"))


def write_csv(all_results: Sequence[GridResults], path: Path) -> None:
    """One line per metric and cell: mean and standard deviation over the seeds, or the error."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("metric", "panel", "row", "column", "mean", "sd", "values", "error"))
        for results in all_results:
            for (panel, row, column), entry in results.entries.items():
                values = " ".join(map(repr, entry.values))
                place = [csv_text(text) for text in (results.metric, panel, row, column)]
                writer.writerow((*place, entry.mean, entry.sd, values, csv_text(entry.error)))
