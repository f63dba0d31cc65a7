"""Line charts beside each other in one look, and Markdown tables: what the experiments are shown with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.report.style import DPI, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CROWDED = 300  # times the least on a logarithmic axis
Lines = Mapping[str, Mapping[float, float]]
"""Values by what is compared and place on the horizontal axis."""


def line_charts(
    panels: Mapping[str, Lines],
    title: str,
    across: str,
    up: str,
    path: Path,
    colours: Mapping[str, str],
    bold: str = "",
    dashed: str = "",
    log: bool = False,
) -> None:
    """Small line charts beside each other, with one legend; the line called `bold` is drawn thicker."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    longest = max((len(name) for lines in panels.values() for name in lines), default=0)
    legend = 0.55 + 0.075 * longest
    figure = Figure(figsize=(3.3 * len(panels) + 0.15 + legend, 3.4), facecolor="white")
    axes = figure.subplots(1, len(panels), sharey=not log, squeeze=False)[0]
    for place, (name, lines) in zip(axes, panels.items(), strict=True):
        for label, points in lines.items():
            if points:
                place.plot(
                    [float(number) for number in points],  # JSON keeps them as words
                    list(points.values()),
                    color=colours.get(label, FAINT),
                    lw=2.4 if label == bold else 1.6,
                    ls="--" if label == dashed else "-",
                    marker="o" if len(points) < 14 else "",
                    ms=3,
                    label=label,
                )
        place.set_title(name, fontsize=9, color=INK, loc="left")
        place.set_xlabel(across, fontsize=8.5, color=FAINT)
        if log:
            _log_scale(place)
        if all(float(number).is_integer() for points in lines.values() for number in points):
            place.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        tidy(place)
    axes[0].set_ylabel(up, fontsize=8.5, color=FAINT)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, weight="bold", color=INK)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", frameon=False, fontsize=8.5, labelcolor=INK)
    width = figure.get_size_inches()[0]
    figure.subplots_adjust(
        left=0.7 / width, right=1 - legend / width, top=0.82, bottom=0.16, wspace=0.28 if log else 0.12
    )
    figure.savefig(path, dpi=DPI)


def tidy(place: "Axes") -> None:
    """Few lines, faint ones."""
    place.spines[["top", "right"]].set_visible(False)
    place.spines[["left", "bottom"]].set_color("#cfd8dc")
    place.tick_params(colors=FAINT, labelsize=8, length=2)
    place.grid(axis="y", color="#eef2f3", lw=0.8)
    place.set_axisbelow(True)


def _log_scale(place: "Axes") -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    place.set_yscale("log")
    low, high = place.get_ylim()
    minor = LogLocator(subs=(2.0, 3.0, 5.0)) if high < CROWDED * low else NullLocator()
    place.yaxis.set_minor_locator(minor)
    place.yaxis.set_major_formatter("{x:g}")
    place.yaxis.set_minor_formatter("{x:g}")
    place.tick_params(which="minor", colors=FAINT, labelsize=7, length=0)


def markdown_table(rows: Mapping[str, Sequence[str]], headings: Sequence[str]) -> str:
    """A Markdown table with a row for each name."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    return "\n".join(lines) + "\n"
