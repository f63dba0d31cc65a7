"""Reliability diagrams: accuracy by confidence."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard.metrics import Bins
from steelyard.report.charts import tidy
from steelyard.report.style import BAR, FAINT, INK, RAMP, distinct, new_axes, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BODY, OVER, UNDER = RAMP[1], "#d9694f", "#e3b04b"
FEW, PALE = 0.01, 0.4  # bins with less than 1 % of the examples are noisy: drawn with opacity 0.4
SIDE, LOW, BETWEEN = 2.7, 0.6, 0.5  # inches: side of the diagram, height of the histogram, gap of panels
LEFT, TOP = 0.75, 1.18
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def draw_reliability(models: Mapping[str, Bins], title: str, path: Path) -> None:
    """Draw one panel per model as PNG, PDF or SVG: accuracy and number of examples by confidence."""
    columns = 5 if len(models) > 1 else 2  # of the legend
    bottom = 0.8 if len(models) > 1 else 1.1
    figure = new_figure(
        LEFT + len(models) * (SIDE + BETWEEN) - 0.15,
        bottom + LOW + 0.15 + SIDE + TOP,
        title,
        _subtitle(models),
        LEFT,
    )
    most = max(float(_shares(bins).max()) for bins in models.values())
    titles = distinct(list(models), 34)
    for number, (title, bins) in enumerate(zip(titles, models.values(), strict=True)):
        left = LEFT + number * (SIDE + BETWEEN)
        square = new_axes(figure, left, bottom + LOW + 0.15, SIDE, SIDE)
        below = new_axes(figure, left, bottom, SIDE, LOW)
        _draw_bins(square, bins)
        _draw_shares(below, bins, most)
        square.set_title(title, fontsize=9.5, color=INK, loc="left", pad=22, parse_math=False)
        place: dict[str, Any] = {"ha": "left", "va": "bottom", "transform": square.transAxes}
        ece = f"ECE {bins.ece:.1%}"
        square.text(0, 1 + 0.06 / SIDE, ece, fontsize=9.5, color=INK, weight="bold", **place)
        for axes, label in ((square, "accuracy"), (below, "examples")):
            axes.tick_params(labelleft=number == 0)
            axes.set_ylabel(label if number == 0 else "", fontsize=8.5, color=FAINT)
            axes.yaxis.set_label_coords(-0.52 / SIDE, 0.5)
    _draw_legend(figure, columns)
    save(figure, path)


def _draw_bins(axes: "Axes", bins: Bins) -> None:
    """One bar per bin up to its accuracy; the gap to its mean confidence is coloured."""
    shares = _shares(bins)
    filled = shares > 0
    confidence, accuracy = bins.confidence.numpy()[filled], bins.accuracy.numpy()[filled]
    width = 1 / len(shares)
    lefts = np.flatnonzero(filled) * width
    lower, upper = np.minimum(confidence, accuracy), np.maximum(confidence, accuracy)
    bars = [
        *axes.bar(lefts + width / 2, lower, 0.88 * width, color=BODY),
        *axes.bar(
            lefts + width / 2,
            upper - lower,
            0.88 * width,
            lower,
            color=np.where(confidence > accuracy, OVER, UNDER),
        ),
    ]
    for bar, share in zip(bars, np.tile(shares[filled], 2), strict=True):
        bar.set_alpha(PALE if share < FEW else 1)
    axes.hlines(accuracy, lefts + 0.06 * width, lefts + 0.94 * width, color=RAMP[4], lw=2, clip_on=False)
    axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=TICKS, yticks=TICKS)
    axes.yaxis.set_major_formatter(_percent)
    tidy(axes)
    axes.spines[["left", "bottom"]].set_visible(True)
    axes.tick_params(labelbottom=False)


def _draw_shares(axes: "Axes", bins: Bins, most: float) -> None:
    """The share of examples in each bin, on one scale for all panels."""
    shares = _shares(bins)
    axes.bar((np.arange(len(shares)) + 0.5) / len(shares), shares, 0.88 / len(shares), color=BAR)
    axes.set(xlim=(0, 1), ylim=(0, most), xticks=TICKS, yticks=[0, most])
    axes.xaxis.set_major_formatter(_percent)
    axes.yaxis.set_major_formatter(_percent)
    tidy(axes)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(True)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("confidence", fontsize=8.5, color=FAINT)


def _draw_legend(figure: "Figure", columns: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    width, height = figure.get_size_inches()
    figure.legend(
        handles=[
            Line2D([], [], color=RAMP[4], lw=2, label="accuracy"),
            Line2D([], [], color=INK, lw=1, ls=(0, (4, 3)), label="calibrated"),
            Patch(color=OVER, label="overconfident"),
            Patch(color=UNDER, label="underconfident"),
            Patch(color=OVER, alpha=PALE, label=f"pale: under {FEW:.0%}"),
        ],
        loc="lower left",
        bbox_to_anchor=((LEFT - 0.05) / width, 0.08 / height),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        handlelength=1.3,
        columnspacing=1.4,
        borderpad=0.0,
        borderaxespad=0.0,
    )


def _subtitle(models: Mapping[str, Bins]) -> str:
    counts = {int(bins.size.sum()) for bins in models.values()}
    return f"{counts.pop():,} examples, by confidence" if len(counts) == 1 else "examples by confidence"


def _shares(bins: Bins) -> NDArray[np.float64]:
    return np.asarray(bins.size / bins.size.sum(), dtype=np.float64)


def _percent(share: float, _: object) -> str:
    return f"{share:.0%}"
