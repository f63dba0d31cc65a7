"""Figure of metrics over the rounds: a line for each spec, and a band of one standard deviation around it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.report.charts import tidy
from steelyard.report.style import FAINT, INK, distinct, new_axes, new_figure, save
from steelyard.studies.curves import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#12606c", "#d9694f", "#e3b04b", "#6a5acd", "#4f9d69", "#8c564b", "#b0558f", "#5b7083")
LINES = ("-", "--", ":", "-.")
"""The colours repeat with another line after eight specs."""
WIDTH, HEIGHT, GAP = 4.2, 2.7, 0.75  # inches
LONGEST = 44  # characters of a name in the legend


def draw_curves(panels: Mapping[str, Mapping[str, Curve]], title: str, path: Path) -> None:
    """Draw {metric: {name: curve}} as PNG, PDF or SVG, one panel for each metric, with one legend."""
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    legend, left = 0.19 * len(names) + 0.15, 0.75
    width = left + len(panels) * WIDTH + (len(panels) - 1) * GAP + 0.3
    bottom = legend + 0.5
    figure = new_figure(width, bottom + HEIGHT + 1.0, title, _subtitle(panels), left)
    style = {name: (COLOURS[i % 8], LINES[i // 8 % 4]) for i, name in enumerate(names)}
    for number, (metric, curves) in enumerate(panels.items()):
        axes = new_axes(figure, left + number * (WIDTH + GAP), bottom, WIDTH, HEIGHT)
        for name, curve in curves.items():
            colour, line = style[name]
            marker = "o" if len(curve.rounds) < 14 else ""
            axes.plot(
                curve.rounds, curve.means, color=colour, ls=line, lw=1.8, marker=marker, ms=3, clip_on=False
            )
            low, high = zip(*_band(curve), strict=True) if curve.rounds else ((), ())
            axes.fill_between(curve.rounds, low, high, color=colour, alpha=0.16, lw=0)
        _finish_panel(axes, metric, curves)
    _draw_legend(figure, style, left)
    save(figure, path)


def _band(curve: Curve) -> list[tuple[float, float]]:
    """One standard deviation below and above the mean."""
    return [(mean - (sd or 0.0), mean + (sd or 0.0)) for mean, sd in zip(curve.means, curve.sds, strict=True)]


def _finish_panel(axes: "Axes", metric: str, curves: Mapping[str, Curve]) -> None:
    from matplotlib.ticker import MaxNLocator

    tidy(axes)
    axes.spines[["left", "bottom"]].set_visible(True)
    axes.set_title(metric.replace("_", " "), fontsize=10, color=INK, loc="left", parse_math=False)
    axes.set_xlabel("round", fontsize=8.5, color=FAINT)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    last = max((curve.rounds[-1] for curve in curves.values() if curve.rounds), default=1)
    first = min((curve.rounds[0] for curve in curves.values() if curve.rounds), default=1)
    axes.set_xlim(first, last if last > first else first + 1)


def _draw_legend(figure: "Figure", style: Mapping[str, tuple[str, str]], left: float) -> None:
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    handles = [
        Line2D([], [], color=colour, ls=line, lw=1.8, label=label.lstrip("_"))
        for label, (colour, line) in zip(distinct(list(style), LONGEST), style.values(), strict=True)
    ]
    legend = figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=((left - 0.05) / width, 0.08 / height),
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        borderpad=0.0,
        borderaxespad=0.0,
        labelspacing=0.35,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _subtitle(panels: Mapping[str, Mapping[str, Curve]]) -> str:
    counts = {curve.runs for curves in panels.values() for curve in curves.values()}
    if counts == {1}:
        return "one run each"
    many = f"{counts.pop()} runs" if len(counts) == 1 else "several runs"
    return f"mean of {many} each; the band is ± one standard deviation"
