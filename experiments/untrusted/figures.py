"""Figures 1 to 3 of the paper, and accuracy over the number of adversaries, in one look."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from steelyard.report.look import DPI, FAINT, INK

COLOURS = {
    "uniform": "#9fb3bd",
    "geometric median": "#c98b2b",
    "coordinate median": "#8a6bb1",
    "IVAR-VB": "#12606c",
    "IVAR-MLE": "#3fa7b5",
    "ICOV-VB": "#b3412f",
    "ICOV-MLE": "#e08f80",
    "ICOV-EM": "#6d1f14",
    "majority": "#1d2b33",
    "oracle": "#6b7a83",
}
Lines = Mapping[str, Mapping[float, float]]
"""Values by rule and place on the horizontal axis."""


def draw(
    panels: Mapping[str, Lines], title: str, across: str, up: str, path: Path, log: bool = False
) -> None:
    """Small line charts beside each other, with one legend."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(3.3 * len(panels) + 1.9, 3.4), facecolor="white")
    axes = figure.subplots(1, len(panels), sharey=not log, squeeze=False)[0]
    for place, (name, lines) in zip(axes, panels.items(), strict=True):
        for rule, points in lines.items():
            if points:
                place.plot(
                    [float(number) for number in points],  # JSON keeps them as words
                    list(points.values()),
                    color=COLOURS.get(rule, FAINT),
                    lw=2.4 if rule == "majority" else 1.6,
                    ls="--" if rule == "oracle" else "-",
                    marker="o" if len(points) < 14 else "",
                    ms=3,
                    label=rule,
                )
        place.set_title(name, fontsize=9, color=INK, loc="left")
        place.set_xlabel(across, fontsize=8.5, color=FAINT)
        if log:
            place.set_yscale("log")
            place.yaxis.set_minor_locator(LogLocator(subs=(2.0, 3.0, 5.0)))
            place.yaxis.set_major_formatter("{x:g}")
            place.yaxis.set_minor_formatter("{x:g}")
            place.tick_params(which="minor", colors=FAINT, labelsize=7, length=0)
        place.spines[["top", "right"]].set_visible(False)
        place.spines[["left", "bottom"]].set_color("#cfd8dc")
        place.tick_params(colors=FAINT, labelsize=8, length=2)
        place.grid(axis="y", color="#eef2f3", lw=0.8)
        place.set_axisbelow(True)
    axes[0].set_ylabel(up, fontsize=8.5, color=FAINT)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, weight="bold", color=INK)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", frameon=False, fontsize=8.5, labelcolor=INK)
    width = figure.get_size_inches()[0]
    figure.subplots_adjust(
        left=0.7 / width, right=1 - 1.75 / width, top=0.82, bottom=0.16, wspace=0.28 if log else 0.12
    )
    figure.savefig(path, dpi=DPI)


def table(rows: Mapping[str, Sequence[str]], headings: Sequence[str]) -> str:
    """A Markdown table with a row for each name."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return (
        "\n".join(lines + [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]) + "\n"
    )
