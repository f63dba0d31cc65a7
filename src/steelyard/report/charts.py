"""Line charts and Markdown tables for the results of experiments."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.report.style import FAINT, INK, NOTE, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MINOR_TICKS_BELOW = 300  # label minor ticks of a log axis if max / min is less than this
Lines = Mapping[str, Mapping[float, float]]
"""{label of a line: {x: y}}."""


def line_charts(
    panels: Mapping[str, Lines],
    title: str,
    x_label: str,
    y_label: str,
    path: Path,
    colours: Mapping[str, str],
    bold: str = "",
    dashed: str = "",
    log: bool = False,
) -> None:
    """Draw one chart per panel, side by side with one legend, as PNG, PDF or SVG.

    `bold` and `dashed` name the lines to draw thicker and dashed.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    longest = max((len(name) for lines in panels.values() for name in lines), default=0)
    legend = 0.55 + 0.075 * longest
    width = max(3.3 * len(panels) + 0.15 + legend, 0.115 * len(title) + 0.2)
    figure = Figure(figsize=(width, 3.4), facecolor="white")
    axes = figure.subplots(1, len(panels), sharey=not log, squeeze=False)[0]
    for ax, (name, lines) in zip(axes, panels.items(), strict=True):
        for label, points in lines.items():
            if points:
                ax.plot(
                    [float(x) for x in points],  # JSON turns the keys into strings
                    list(points.values()),
                    color=colours.get(label, FAINT),
                    lw=2.4 if label == bold else 1.6,
                    ls="--" if label == dashed else "-",
                    marker="o" if len(points) < 14 else "",
                    ms=3,
                    label=label,
                )
        ax.set_title(name, fontsize=9, color=INK, loc="left")
        ax.set_xlabel(x_label, fontsize=8.5, color=FAINT)
        if log:
            _log_scale(ax)
        if all(float(x).is_integer() for points in lines.values() for x in points):
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        tidy(ax)
    axes[0].set_ylabel(y_label, fontsize=8.5, color=FAINT)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, weight="bold", color=INK)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", frameon=False, fontsize=8.5, labelcolor=INK)
    figure.subplots_adjust(
        left=0.7 / width, right=1 - legend / width, top=0.82, bottom=0.16, wspace=0.28 if log else 0.12
    )
    save(figure, path)


def tidy(ax: "Axes") -> None:
    """Hide the top and right spines, and make ticks and grid faint."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#cfd8dc")
    ax.tick_params(colors=FAINT, labelsize=8, length=2)
    ax.grid(axis="y", color="#eef2f3", lw=0.8)
    ax.set_axisbelow(True)


def _log_scale(ax: "Axes") -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    minor = LogLocator(subs=(2.0, 3.0, 5.0)) if high < MINOR_TICKS_BELOW * low else NullLocator()
    ax.yaxis.set_minor_locator(minor)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    ax.tick_params(which="minor", colors=FAINT, labelsize=7, length=0)


def markdown_table(rows: Mapping[str, Sequence[str]], headings: Sequence[str]) -> str:
    """A Markdown table with one row per name."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    note = [f"**{NOTE.get()}**", ""] if NOTE.get() else []
    return "\n".join([*note, *lines]) + "\n"


def read_tables(text: str) -> list[tuple[list[str], list[list[str]]]]:
    """The tables in a Markdown text, each as (headings, rows)."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)
    tables = [[line[2:-2].split(" | ") for line in block.splitlines()] for block in blocks]
    return [(headings, rows) for headings, _, *rows in tables]
