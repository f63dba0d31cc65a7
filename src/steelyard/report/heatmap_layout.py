"""Where the parts of heat maps stand, in inches, and which shade a value has."""

import math
from dataclasses import dataclass

import numpy as np

from steelyard.report.style import label_angle, readable
from steelyard.studies.grid_results import Sheet, number

LONGEST = 22  # characters of a label
HEAD, FOOT, LEGEND = 0.75, 0.9, 2.2  # inches for the title above, the scale below, and its length
SHAPE = 1.5  # how much wider than tall a picture should be


@dataclass(frozen=True)
class Measures:
    """Sizes in inches."""

    cell: float
    row: float
    worst: float
    names: float
    """Room for the names of rows, on the left."""
    labels: float
    """Room for the names of columns, above each panel."""
    angle: int
    title: float
    columns: int
    rows: int

    @property
    def grid_width(self) -> float:
        return self.cell * self.columns

    @property
    def grid_height(self) -> float:
        return self.row * self.rows

    @property
    def panel_width(self) -> float:
        return self.grid_width + (0.12 + self.worst if self.worst else 0.0)

    @property
    def panel_height(self) -> float:
        return self.grid_height + self.labels + self.title

    @property
    def apart(self) -> float:
        """Between panels; slanting names lean out of their own."""
        return 0.35 + (0.6 * self.labels if self.angle == 45 else 0.0) * (not self.worst)


@dataclass(frozen=True)
class Scale:
    """From values to shades: dark is good, whatever the metric."""

    low: float
    high: float
    reverse: bool

    def shade(self, value: float) -> float:
        share = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return 1 - share if self.reverse else share


def measure(sheet: Sheet) -> Measures:
    columns = [readable(name, LONGEST) for name in sheet.columns]
    digits = max((len(number(value)) for value in sheet.values()), default=4)
    cell = max(0.46, 0.085 * digits)
    if max(map(len, columns)) * 0.08 <= 0.9 and len(columns) <= 6:  # few and short: let the names lie flat
        cell = max(cell, 0.08 * max(map(len, columns)) + 0.05)
    angle = label_angle(columns, cell)
    lean = math.sin(math.radians(angle)) * 0.075 * max(map(len, columns))
    worst = float(np.clip(0.056 * max(map(len, columns)) + 0.1, 0.62, 1.3)) if sheet.has_worst else 0.0
    return Measures(
        cell=cell,
        row=0.36 if worst else 0.3,
        worst=worst,
        names=0.35 + 0.075 * max(len(readable(name, LONGEST)) for name in sheet.rows),
        labels=0.24 + lean if any(columns) else 0.05,
        angle=angle,
        title=0.28 if any(sheet.panels) else 0.0,
        columns=len(columns),
        rows=len(sheet.rows),
    )


def panels_across(panels: int, measures: Measures) -> int:
    """How many panels stand side by side: what comes nearest to a sheet of paper on its side."""

    def off(across: int) -> float:
        down = math.ceil(panels / across)
        width = measures.names + across * (measures.panel_width + measures.apart)
        ratio = width / (HEAD + FOOT + down * (measures.panel_height + 0.35))
        return abs(math.log(ratio / SHAPE)) + 0.1 * (across * down - panels)

    return min(range(1, panels + 1), key=off)


def scale_of(sheet: Sheet) -> Scale:
    """Shares that spread wide are shown from 0 to 1, all else from the least to the most."""
    finite = [value for value in sheet.values() if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if low >= 0 and high <= 1 and (high - low > 0.25 or high == low):
        low, high = 0.0, 1.0
    return Scale(low, high if high > low else low + 1.0, sheet.lower_is_better)
