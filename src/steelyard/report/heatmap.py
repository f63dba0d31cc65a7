"""Heat maps of a grid: one per panel, on a common scale, with an extra column for the worst of each row."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.report.heatmap_layout import (
    AXIS,
    FOOT,
    HEAD,
    LEGEND,
    LONGEST,
    Measures,
    Scale,
    measure,
    panels_across,
    scale_of,
)
from steelyard.report.style import FAINT, INK, distinct, new_axes, new_figure, ramp, readable, save
from steelyard.studies.grid_results import Entry, GridResults, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_heatmap(results: GridResults, title: str, subtitle: str, path: Path) -> None:
    """Draw one metric of a grid as PNG, PDF or SVG."""
    measures = measure(results)
    across = panels_across(len(results.panels), measures)
    down = math.ceil(len(results.panels) / across)
    left = measures.names
    width = left + max(across * measures.panel_width + (across - 1) * measures.apart, LEGEND) + 0.35
    height = HEAD + down * measures.panel_height + (down - 1) * 0.35 + FOOT
    figure = new_figure(width, height, title, subtitle, left)
    scale = scale_of(results)
    for position, panel in enumerate(results.panels):
        x = left + (position % across) * (measures.panel_width + measures.apart)
        y = height - HEAD - (position // across + 1) * measures.panel_height - (position // across) * 0.35
        _draw_panel(figure, results, panel, measures, scale, (x, y), named=position % across == 0)
    _draw_scale(figure, results.metric, scale, left)
    save(figure, path)


def _draw_panel(
    figure: "Figure",
    results: GridResults,
    panel: str,
    measures: Measures,
    scale: Scale,
    place: tuple[float, float],
    named: bool,
) -> None:
    x, y = place
    grid = new_axes(figure, x, y, measures.grid_width, measures.grid_height)
    means = [[results.entry(panel, row, column).mean for column in results.columns] for row in results.rows]
    _draw_cells(grid, means, scale)
    for down, across in np.ndindex(len(results.rows), len(results.columns)):
        entry = results.entry(panel, results.rows[down], results.columns[across])
        _write_entry(grid, across + 0.5, down, entry, scale)
    _name_axes(grid, results, measures, named)
    _name_columns(grid, distinct(results.columns, LONGEST), measures.angle)
    names = distinct(results.rows, LONGEST) if named else [""] * len(results.rows)
    grid.set_yticks(np.arange(len(names)) + 0.5, labels=names, parse_math=False)
    if results.has_worst:
        right = x + measures.grid_width + 0.12
        _draw_worst(
            new_axes(figure, right, y, measures.worst, measures.grid_height), results, panel, measures, scale
        )
    if panel:
        _write_title(figure, results.title(panel), x, y + measures.panel_height)


def _write_entry(axes: "Axes", x: float, row: int, entry: Entry, scale: Scale) -> None:
    """The mean of a cell, and below it the standard deviation over the seeds, if there are several."""
    if entry.error or entry.sd is None:
        _write(axes, x, row + 0.5, "failed" if entry.error else number(entry.mean), entry.mean, scale)
        return
    _write(axes, x, row + 0.36, number(entry.mean), entry.mean, scale)
    _write(axes, x, row + 0.74, f"± {number(entry.sd)}", entry.mean, scale, fontsize=5.8)


def _name_axes(axes: "Axes", results: GridResults, measures: Measures, named: bool) -> None:
    """The settings that vary: over the column names, and over the row names of the first panel."""
    style: dict[str, Any] = {"fontsize": 8, "color": FAINT, "parse_math": False, "va": "bottom"}
    unit = 1 / measures.row  # of an inch, in rows
    if results.column_key:
        up = (measures.labels - AXIS) * unit
        axes.text(0, -up, readable(results.column_key, LONGEST), ha="left", **style)
    if results.row_key and named:
        right = -0.07 / measures.cell
        axes.text(right, -0.05 * unit, readable(results.row_key, LONGEST), ha="right", **style)


def _write_title(figure: "Figure", title: str, x: float, y: float) -> None:
    across, up = figure.get_size_inches()
    style: dict[str, Any] = {"fontsize": 10.5, "weight": "bold", "color": INK, "parse_math": False}
    figure.text(x / across, y / up, readable(title, 60), va="top", **style)


def _draw_worst(axes: "Axes", results: GridResults, panel: str, measures: Measures, scale: Scale) -> None:
    """The worst value of each row in bold, and below it the name of the column it comes from."""
    worst_by_row = [results.worst(panel, row) for row in results.rows]
    _draw_cells(axes, [[None if worst is None else worst.value] for worst in worst_by_row], scale)
    for down, worst in enumerate(worst_by_row):
        if worst is None:
            _write(axes, 0.5, down + 0.5, "–", None, scale)
            continue
        text = "failed" if worst.value is None else number(worst.value)
        _write(axes, 0.5, down + 0.36, text, worst.value, scale, weight="bold")
        name = readable(worst.column, int(measures.worst / 0.056))
        _write(axes, 0.5, down + 0.74, name, worst.value, scale, fontsize=5.8)
    _name_columns(axes, ["worst"], measures.angle, weight="bold")
    axes.set_yticks([])


def _draw_cells(axes: "Axes", values: list[list[float | None]], scale: Scale) -> None:
    """Shaded squares; missing values are almost white."""
    shades = np.array([[np.nan if value is None else scale.shade(value) for value in row] for row in values])
    colours = ramp().with_extremes(bad="#fafbfb")
    axes.pcolormesh(shades, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
    axes.invert_yaxis()


def _write(
    axes: "Axes", x: float, y: float, text: str, value: float | None, scale: Scale, **style: Any
) -> None:
    """Text in a cell: white on dark, dark on light, faint where the value is missing."""
    color = FAINT if value is None else "white" if scale.shade(value) > 0.6 else INK
    size = 6.5 if text == "failed" else 8
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": size, "color": color, **style})


def _name_columns(axes: "Axes", names: list[str], angle: int, **style: Any) -> None:
    axes.xaxis.tick_top()
    place: dict[str, Any] = {
        "rotation": angle,
        "ha": "left" if angle == 45 else "center",
        "rotation_mode": "anchor",
    }
    axes.set_xticks(np.arange(len(names)) + 0.5, labels=names, parse_math=False, **place, **style)


def _draw_scale(figure: "Figure", metric: str, scale: Scale, left: float) -> None:
    """The colour scale of all panels, below the first one."""
    axes = new_axes(figure, left, 0.36, LEGEND, 0.1)
    steps = np.linspace(0, 1, 256)[None, :]
    axes.imshow(1 - steps if scale.reverse else steps, cmap=ramp(), aspect="auto", extent=(0, 1, 0, 1))
    axes.set_yticks([])
    ends = [number(scale.low), number((scale.low + scale.high) / 2), number(scale.high)]
    axes.set_xticks([0, 0.5, 1], labels=ends, fontsize=8, color=FAINT)
    caption = f"{metric.replace('_', ' ')} · dark is better"
    axes.text(0, 1.6, caption, va="bottom", fontsize=8, color=FAINT, parse_math=False)
