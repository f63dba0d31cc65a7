"""Layout of heat maps in inches, and the mapping from values to shades."""

import math
from dataclasses import dataclass

import numpy as np

from steelyard.report.style import label_angle, readable
from steelyard.studies.grid_results import GridResults, number

LONGEST = 22  # characters; longer labels are cut
HEAD, FOOT, LEGEND = 0.75, 0.9, 2.2  # inches for the title above, the scale below, and its length
AXIS = 0.22  # inches for the name of the setting over the column names
ASPECT = 1.5  # preferred width / height of a figure


@dataclass(frozen=True)
class Measures:
    """Sizes in inches."""

    cell: float
    row: float
    worst: float
    names: float
    """Width of the row names, on the left."""
    labels: float
    """Height of the column names, above each panel."""
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
        """Space between panels; slanted column names need more."""
        return 0.35 + (0.6 * self.labels if self.angle == 45 else 0.0) * (not self.worst)


@dataclass(frozen=True)
class Scale:
    """Maps values to shades from 0 to 1; darker is better for every metric."""

    low: float
    high: float
    reverse: bool

    def shade(self, value: float) -> float:
        share = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return 1 - share if self.reverse else share


def measure(results: GridResults) -> Measures:
    columns = [readable(name, LONGEST) for name in results.columns]
    digits = max((len(number(value)) for value in results.values()), default=4)
    cell = max(0.46, 0.085 * digits)
    if max(map(len, columns)) * 0.08 <= 0.9 and len(columns) <= 6:  # few and short names stay horizontal
        cell = max(cell, 0.08 * max(map(len, columns)) + 0.05)
    angle = label_angle(columns, cell)
    lean = math.sin(math.radians(angle)) * 0.075 * max(map(len, columns))
    has_sd = any(entry.sd is not None for entry in results.entries.values())
    labels = 0.24 + lean if any(columns) else 0.05
    worst = float(np.clip(0.056 * max(map(len, columns)) + 0.1, 0.62, 1.3)) if results.has_worst else 0.0
    return Measures(
        cell=cell,
        row=0.36 if worst or has_sd else 0.3,
        worst=worst,
        names=0.35 + 0.075 * max(len(readable(name, LONGEST)) for name in (*results.rows, results.row_key)),
        labels=max(labels + (AXIS if results.column_key else 0.0), AXIS if results.row_key else 0.0),
        angle=angle,
        title=0.28 if any(results.panels) else 0.0,
        columns=len(columns),
        rows=len(results.rows),
    )


def panels_across(panels: int, measures: Measures) -> int:
    """The number of panels side by side that brings the figure nearest to `ASPECT`."""

    def mismatch(across: int) -> float:
        down = math.ceil(panels / across)
        width = measures.names + across * (measures.panel_width + measures.apart)
        ratio = width / (HEAD + FOOT + down * (measures.panel_height + 0.35))
        return abs(math.log(ratio / ASPECT)) + 0.1 * (across * down - panels)

    return min(range(1, panels + 1), key=mismatch)


def scale_of(results: GridResults) -> Scale:
    """From 0 to 1 for values within [0, 1] that differ by more than 0.25, else from minimum to maximum."""
    finite = [value for value in results.values() if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if low >= 0 and high <= 1 and (high - low > 0.25 or high == low):
        low, high = 0.0, 1.0
    return Scale(low, high if high > low else low + 1.0, results.lower_is_better)
