"""A grid as heat maps: rows × columns for every panel, one scale for all, the worst of each row set apart."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.report.heatmap_layout import (
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
from steelyard.report.style import DPI, FAINT, INK, new_axes, new_figure, ramp, readable
from steelyard.studies.grid_results import Sheet, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_heatmap(sheet: Sheet, title: str, subtitle: str, path: Path) -> None:
    """Draw a metric over a grid as a PNG."""
    measures = measure(sheet)
    across = panels_across(len(sheet.panels), measures)
    down = math.ceil(len(sheet.panels) / across)
    left = measures.names
    width = left + max(across * measures.panel_width + (across - 1) * measures.apart, LEGEND) + 0.35
    height = HEAD + down * measures.panel_height + (down - 1) * 0.35 + FOOT
    figure = new_figure(width, height, title, subtitle, left)
    scale = scale_of(sheet)
    for position, panel in enumerate(sheet.panels):
        x = left + (position % across) * (measures.panel_width + measures.apart)
        y = height - HEAD - (position // across + 1) * measures.panel_height - (position // across) * 0.35
        _draw_panel(figure, sheet, panel, measures, scale, (x, y), named=position % across == 0)
    _draw_scale(figure, sheet.metric, scale, left)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, format="png")


def _draw_panel(
    figure: "Figure",
    sheet: Sheet,
    panel: str,
    measures: Measures,
    scale: Scale,
    place: tuple[float, float],
    named: bool,
) -> None:
    x, y = place
    grid = new_axes(figure, x, y, measures.grid_width, measures.grid_height)
    means = [[sheet.entry(panel, row, column).mean for column in sheet.columns] for row in sheet.rows]
    _draw_cells(grid, means, scale)
    for (down, across), value in np.ndenumerate(np.array(means, dtype=object)):
        failed = sheet.entry(panel, sheet.rows[down], sheet.columns[across]).error
        _write(grid, across + 0.5, down + 0.5, "failed" if failed else number(value), value, scale)
    _name_columns(grid, [readable(name, LONGEST) for name in sheet.columns], measures.angle)
    names = [readable(row, LONGEST) if named else "" for row in sheet.rows]
    grid.set_yticks(np.arange(len(names)) + 0.5, labels=names, parse_math=False)
    if sheet.has_worst:
        right = x + measures.grid_width + 0.12
        _draw_worst(
            new_axes(figure, right, y, measures.worst, measures.grid_height), sheet, panel, measures, scale
        )
    if panel:
        _write_title(figure, sheet.title(panel), x, y + measures.panel_height)


def _write_title(figure: "Figure", title: str, x: float, y: float) -> None:
    across, up = figure.get_size_inches()
    look: dict[str, Any] = {"fontsize": 10.5, "weight": "bold", "color": INK, "parse_math": False}
    figure.text(x / across, y / up, readable(title, 60), va="top", **look)


def _draw_worst(axes: "Axes", sheet: Sheet, panel: str, measures: Measures, scale: Scale) -> None:
    """One column, in bold, with the name of the column that it comes from below each number."""
    found = [sheet.worst(panel, row) for row in sheet.rows]
    _draw_cells(axes, [[None if each is None else each.value] for each in found], scale)
    for down, each in enumerate(found):
        if each is None:
            _write(axes, 0.5, down + 0.5, "–", None, scale)
            continue
        text = "failed" if each.value is None else number(each.value)
        _write(axes, 0.5, down + 0.36, text, each.value, scale, weight="bold")
        name = readable(each.column, int(measures.worst / 0.056))
        _write(axes, 0.5, down + 0.74, name, each.value, scale, fontsize=5.8)
    _name_columns(axes, ["worst"], measures.angle, weight="bold")
    axes.set_yticks([])


def _draw_cells(axes: "Axes", values: list[list[float | None]], scale: Scale) -> None:
    """Shaded squares; a hole stays pale."""
    shades = np.array([[np.nan if each is None else scale.shade(each) for each in row] for row in values])
    colours = ramp().with_extremes(bad="#fafbfb")
    axes.pcolormesh(shades, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
    axes.invert_yaxis()


def _write(
    axes: "Axes", x: float, y: float, text: str, value: float | None, scale: Scale, **look: Any
) -> None:
    """Text in a cell: white on dark, dark on light, and faint in a hole."""
    color = FAINT if value is None else "white" if scale.shade(value) > 0.6 else INK
    size = 6.5 if text == "failed" else 8
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": size, "color": color, **look})


def _name_columns(axes: "Axes", names: list[str], angle: int, **look: Any) -> None:
    axes.xaxis.tick_top()
    place: dict[str, Any] = {
        "rotation": angle,
        "ha": "left" if angle == 45 else "center",
        "rotation_mode": "anchor",
    }
    axes.set_xticks(np.arange(len(names)) + 0.5, labels=names, parse_math=False, **place, **look)


def _draw_scale(figure: "Figure", metric: str, scale: Scale, left: float) -> None:
    """One legend for all panels, below the first."""
    axes = new_axes(figure, left, 0.36, LEGEND, 0.1)
    steps = np.linspace(0, 1, 256)[None, :]
    axes.imshow(1 - steps if scale.reverse else steps, cmap=ramp(), aspect="auto", extent=(0, 1, 0, 1))
    axes.set_yticks([])
    ends = [number(scale.low), number((scale.low + scale.high) / 2), number(scale.high)]
    axes.set_xticks([0, 0.5, 1], labels=ends, fontsize=8, color=FAINT)
    caption = f"{metric.replace('_', ' ')} · dark is better"
    axes.text(0, 1.6, caption, va="bottom", fontsize=8, color=FAINT, parse_math=False)
