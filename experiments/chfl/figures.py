"""The figure of the shared head's accuracy."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.report.charts import line_charts

COLOURS = {
    "SOLO": "#9fb3bd",
    "KD": "#b3412f",
    "SOLO, common head": "#c98b2b",
    "AVG": "#5b9aa0",
    "chfl": "#12606c",
}
Runs = Mapping[str, Mapping[str, Any]]


def draw(table: Mapping[str, Runs], out: Path) -> list[Path]:
    """Accuracy of the shared head on the embeddings of all clients, by round."""
    panels = {
        setting: {name: mean_curve(methods[name]) for name in COLOURS if name in methods}
        for setting, methods in table.items()
        if setting.startswith(("DIGIT", "BCD"))
    }
    path = out / "shared-accuracy.png"
    title = "What the shared head knows of a client's embeddings"
    line_charts(panels, title, "round", "test accuracy, all classes", path, COLOURS, bold="chfl")
    return [path]


def mean_curve(runs: Mapping[str, Any]) -> dict[float, float]:
    """Mean over the seeds, by round."""
    curves = [run["shared"] for run in runs.values()]
    return {float(round): statistics.fmean(curve[round] for curve in curves) for round in curves[0]}
