"""One metric of every cell of a grid, as plain values for heat maps, tables and files."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LOWER = frozenset({"nll", "mse", "rmse", "mae", "loss", "sd", "error", "ece", "brier"})
"""A metric with one of these words in its name is better if smaller."""


@dataclass(frozen=True)
class Entry:
    """Mean and standard deviation over the seeds; None if a run failed (with `error`) or lacks the metric."""

    mean: float | None = None
    sd: float | None = None
    error: str = ""
    values: tuple[float, ...] = ()
    """One for each seed whose run has the metric."""


@dataclass(frozen=True)
class Worst:
    """The worst value of a row and its column; None stands for a failed run."""

    column: str
    value: float | None


@dataclass(frozen=True)
class GridResults:
    """Values of one metric: rows × columns for each panel."""

    metric: str
    panels: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    entries: Mapping[tuple[str, str, str], Entry]
    """By (panel, row, column); missing ones are empty."""
    panel_key: str = ""
    """The setting that varies over the panels, if there is only one; so for rows and columns."""
    row_key: str = ""
    column_key: str = ""
    seeds: tuple[int, ...] = ()

    @property
    def lower_is_better(self) -> bool:
        return not LOWER.isdisjoint(re.split(r"[_\W]+", self.metric))

    @property
    def caption(self) -> str:
        """The metric, and over which seeds it is a mean."""
        name, seeds = self.metric.replace("_", " "), ", ".join(map(str, self.seeds))
        if len(self.seeds) > 1:
            return f"{name}, mean ± sd over seeds {seeds}"
        return f"{name}, seed {seeds}" if seeds else name

    @property
    def has_worst(self) -> bool:
        """Whether there are several columns to find the worst of."""
        return len(self.columns) > 1

    def title(self, panel: str) -> str:
        """The panel's label, preceded by its setting if the label is only a value."""
        return f"{self.panel_key} = {panel}" if self.panel_key else panel

    def entry(self, panel: str, row: str, column: str) -> Entry:
        return self.entries.get((panel, row, column), Entry())

    def worst(self, panel: str, row: str) -> Worst | None:
        """The worst mean of a row. A failed run is the worst of all; missing values are skipped."""
        means = []
        for column in self.columns:
            entry = self.entry(panel, row, column)
            if entry.error:
                return Worst(column, None)
            if entry.mean is not None:
                means.append(Worst(column, entry.mean))
        return min(means, key=self._goodness, default=None)

    def sorted_by_worst(self) -> "GridResults":
        """Rows sorted by their worst values, best first, in the same order in all panels."""

        def goodness(row: str) -> float:
            worsts = [worst for panel in self.panels if (worst := self.worst(panel, row)) is not None]
            return sum(map(self._goodness, worsts)) if worsts else -math.inf

        return replace(self, rows=tuple(sorted(self.rows, key=goodness, reverse=True)))

    def values(self) -> list[float]:
        return [entry.mean for entry in self.entries.values() if entry.mean is not None]

    def as_values(self) -> dict[str, list[dict[str, Any]]]:
        """For JSON: all cells, and the worst of each row of each panel."""
        cells = [
            {"panel": panel, "row": row, "column": column, "mean": entry.mean, "sd": entry.sd}
            for (panel, row, column), entry in self.entries.items()
        ]
        rows = [(panel, row, self.worst(panel, row)) for panel in self.panels for row in self.rows]
        worsts = [
            {"panel": panel, "row": row, "value": worst and worst.value, "column": worst and worst.column}
            for panel, row, worst in rows
        ]
        return {"cells": cells, "worst": worsts}

    def _goodness(self, worst: Worst) -> float:
        """The value with its sign set so that larger is better."""
        if worst.value is None:
            return -math.inf
        return -worst.value if self.lower_is_better else worst.value


def number(value: float | None) -> str:
    """A number with two decimals, or two digits if it is 100 or more; "–" for None."""
    if value is None:
        return "–"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.2g}"
