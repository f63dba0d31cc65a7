"""A grid on the terminal and as CSV: progress while it runs, tables when it is over."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from steelyard.studies.grid_results import Sheet, Worst, number


@contextmanager
def cells_progress(console: Console, title: str) -> Iterator[Callable[[int, int], None]]:
    """A live line: runs done and the time left. Yields what is to be told of every run that ends."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.fields[count]}"),
        TextColumn("[dim]left[/]"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, speed_estimate_period=600
    ) as bar:
        task = bar.add_task(title, total=None, count="checking every cell")
        yield lambda done, total: bar.update(
            task, completed=done, total=total, count=f"{done} of {total} runs"
        )


def sheet_report(sheet: Sheet) -> RenderableType:
    """One table for each panel, with the worst of each row on the right."""
    parts: list[RenderableType] = [Text(sheet.metric.replace("_", " "), "bold")]
    if not sheet.values():
        parts.append(Text("no run of the grid has this metric", "dim"))
        return Group(*parts)
    for panel in sheet.panels:
        parts += ["", Text(sheet.title(panel), "cyan")] if panel else [""]
        parts.append(_panel_table(sheet, panel))
    return Group(*parts)


def failures_report(failures: Sequence[tuple[str, str]]) -> RenderableType:
    """Which cells failed, and why."""
    lines = [Text.assemble((f"{name}  ", "bold"), reason) for name, reason in failures]
    return Group(Text(f"failed: {len(failures)}", "bold red"), *lines)


def _panel_table(sheet: Sheet, panel: str) -> Table:
    """Where there is little room, headings fold; numbers and the names of rows stay whole."""
    table = Table(
        box=None, pad_edge=False, header_style="dim", padding=(0, 2 if len(sheet.columns) < 8 else 1, 0, 0)
    )
    table.add_column("", no_wrap=True, min_width=max(map(len, sheet.rows)))
    for column in sheet.columns:
        entries = [sheet.entry(panel, row, column) for row in sheet.rows]
        widest = max(len("failed" if each.error else number(each.mean)) for each in entries)
        table.add_column(Text(column, overflow="fold"), justify="right", min_width=widest)
    if sheet.has_worst:
        table.add_column("  worst", header_style="bold", no_wrap=True, min_width=14)
    for row in sheet.rows:
        entries = [sheet.entry(panel, row, column) for column in sheet.columns]
        cells = [Text("failed", "red") if each.error else Text(number(each.mean)) for each in entries]
        worst = [_said(sheet.worst(panel, row))] if sheet.has_worst else []
        table.add_row(Text(row), *cells, *worst)
    return table


def _said(worst: Worst | None) -> Text:
    if worst is None:
        return Text("–")
    value = ("failed", "bold red") if worst.value is None else (number(worst.value), "bold")
    return Text.assemble("  ", value, (f" {worst.column}", "dim"))


def write_csv(sheets: Sequence[Sheet], path: Path) -> None:
    """A line for each metric of each cell: mean and sd over the seeds, or why there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("metric", "panel", "row", "column", "mean", "sd", "values", "error"))
        for sheet in sheets:
            for (panel, row, column), each in sheet.entries.items():
                values = " ".join(map(repr, each.values))
                writer.writerow((sheet.metric, panel, row, column, each.mean, each.sd, values, each.error))
