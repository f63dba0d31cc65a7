"""Figures 3 to 6 of the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.report.charts import line_charts, tidy
from steelyard.report.style import FAINT, INK, save

CLAIMED = {"FedAvg": 0.86, "FedBaC, no regulariser": 0.88, "FedBaC, literal": 0.92}
"""Final accuracy in the report."""
COLOURS = {
    "FedAvg": "#9fb3bd",
    "FedProx": "#c98b2b",
    "FedBaC, no regulariser": "#e08f80",
    "FedBaC, literal": "#b3412f",
    "FedBaC, stabilised": "#12606c",
}
Y_LABELS = {
    "accuracy": "test accuracy",
    "reliability_accuracy_spearman": "rank correlation",
}


def bars(finals: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Figure 3: final accuracy. Bars are means, dots are seeds, dashed lines are the report's values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.4), facecolor="white")
    ax = figure.subplots()
    for number, (name, values) in enumerate(finals.items()):
        average = sum(values) / len(values)
        ax.bar(number, average, width=0.62, color=COLOURS[name], alpha=0.55)
        ax.scatter([number] * len(values), values, s=16, color=INK, zorder=3, label="a seed")
        height = _label_height(values, CLAIMED.get(name, 0.0))
        ax.text(number, height, f"{average:.3f}", ha="center", fontsize=9, color=INK)
        if name in CLAIMED:
            line = [CLAIMED[name], CLAIMED[name]]
            ax.plot([number - 0.38, number + 0.38], line, color=INK, lw=1.6, ls=(0, (3, 2)), label="report")
    ax.set_xticks(range(len(finals)), [name.replace(", ", ",\n") for name in finals])
    ax.set_ylim(0, 1.09)
    tidy(ax)
    ax.tick_params(axis="x", labelsize=8.5, labelcolor=INK, length=0)
    ax.set_ylabel("final test accuracy", fontsize=8.5, color=FAINT)
    labels = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(labels.values(), labels.keys(), frameon=False, fontsize=8.5, loc="upper right", ncols=2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, weight="bold", color=INK)
    figure.subplots_adjust(left=0.085, right=0.99, top=0.86, bottom=0.16)
    save(figure, path)


def _label_height(values: Sequence[float], claimed: float) -> float:
    """Above the bar, or within it if the report's line is there."""
    above = max(values) + 0.03
    return min(values) - 0.09 if above - 0.02 < claimed < above + 0.06 else above


def curves_by_seed(
    runs: Mapping[str, Mapping[str, Any]],
    methods: Sequence[str],
    metric: str,
    title: str,
    path: Path,
    dashed: str = "",
    smooth: int = 1,
) -> None:
    """Figures 4 to 6: one panel per seed, one line per method; `dashed` may lie on another."""
    seeds = sorted({seed for method in methods for seed in runs[method]})
    panels = {
        f"seed {seed}": {
            method: _smoothed(runs[method][seed]["curves"][metric], smooth)
            for method in methods
            if seed in runs[method]
        }
        for seed in seeds
    }
    bold = methods[-1] if metric == "accuracy" else ""
    line_charts(panels, title, "round", Y_LABELS[metric], path, COLOURS, bold, dashed)


def _smoothed(points: Mapping[Any, float | None], width: int) -> dict[float, float]:
    """Means over every `width` consecutive points."""
    defined = [(float(number), value) for number, value in points.items() if value is not None]
    parts = [defined[start : start + width] for start in range(0, len(defined), width)]
    return {part[-1][0]: sum(value for _, value in part) / len(part) for part in parts}
