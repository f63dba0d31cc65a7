"""One metric over a whole grid, as plain values: the picture, the terminal and files all show this."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LOWER = frozenset({"nll", "mse", "rmse", "mae", "loss", "sd", "error", "ece", "brier"})
"""Words in the name of a metric that should be small."""


@dataclass(frozen=True)
class Entry:
    """The mean over the seeds; a hole has none, and an error if a run failed."""

    mean: float | None = None
    sd: float | None = None
    error: str = ""
    values: tuple[float, ...] = ()
    """One for each seed that has one."""


@dataclass(frozen=True)
class Worst:
    """The worst that a row comes to, and in which column."""

    column: str
    value: float | None


@dataclass(frozen=True)
class Sheet:
    """Rows × columns for every panel."""

    metric: str
    panels: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    entries: Mapping[tuple[str, str, str], Entry]
    """By panel, row and column; what is not here is a hole."""
    panel_key: str = ""
    """The setting whose values the panels are, if it is one."""

    @property
    def lower_is_better(self) -> bool:
        return not LOWER.isdisjoint(re.split(r"[_\W]+", self.metric))

    @property
    def has_worst(self) -> bool:
        """With one column, the worst is that column."""
        return len(self.columns) > 1

    def title(self, panel: str) -> str:
        """A value that stands alone says what it is a value of."""
        return f"{self.panel_key} = {panel}" if self.panel_key else panel

    def entry(self, panel: str, row: str, column: str) -> Entry:
        return self.entries.get((panel, row, column), Entry())

    def worst(self, panel: str, row: str) -> Worst | None:
        """The worst mean of a row: nothing is worse than a run that failed, and holes are passed over."""
        known = []
        for column in self.columns:
            entry = self.entry(panel, row, column)
            if entry.error:
                return Worst(column, None)
            if entry.mean is not None:
                known.append(Worst(column, entry.mean))
        return min(known, key=self._goodness, default=None)

    def sorted_by_worst(self) -> "Sheet":
        """The best rows first, in one order for all panels, so that they can be compared."""

        def goodness(row: str) -> float:
            found = [worst for panel in self.panels if (worst := self.worst(panel, row)) is not None]
            return sum(map(self._goodness, found)) if found else -math.inf

        return replace(self, rows=tuple(sorted(self.rows, key=goodness, reverse=True)))

    def values(self) -> list[float]:
        return [entry.mean for entry in self.entries.values() if entry.mean is not None]

    def as_values(self) -> dict[str, list[dict[str, Any]]]:
        """For JSON: the cells, and the worst of each row of each panel."""
        cells = [
            {"panel": panel, "row": row, "column": column, "mean": each.mean, "sd": each.sd}
            for (panel, row, column), each in self.entries.items()
        ]
        rows = [(panel, row, self.worst(panel, row)) for panel in self.panels for row in self.rows]
        worst = [
            {"panel": panel, "row": row, "value": each and each.value, "column": each and each.column}
            for panel, row, each in rows
        ]
        return {"cells": cells, "worst": worst}

    def _goodness(self, worst: Worst) -> float:
        """Larger is better, whatever the metric."""
        if worst.value is None:
            return -math.inf
        return -worst.value if self.lower_is_better else worst.value


def number(value: float | None) -> str:
    """A number that fits a cell."""
    if value is None:
        return "–"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.2g}"
