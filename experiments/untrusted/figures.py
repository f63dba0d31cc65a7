"""Line charts with one colour for each rule."""

from collections.abc import Mapping
from pathlib import Path

from steelyard.report.charts import Lines, line_charts

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


def draw(
    panels: Mapping[str, Lines], title: str, x_label: str, y_label: str, path: Path, log: bool = False
) -> None:
    line_charts(panels, title, x_label, y_label, path, COLOURS, bold="majority", dashed="oracle", log=log)
