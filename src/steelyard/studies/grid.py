"""Run a spec over a grid of settings: one run for each combination of row, column, panel and seed.

A grid file is a spec with an extra table `[grid]`. Its axes `rows`, `columns` and `panels` are either one
setting with a list of values, or labels with the settings that each of them changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.errors import InputError, unknown
from steelyard.specs import sources
from steelyard.specs.building import build_algorithm
from steelyard.specs.gate import Permission
from steelyard.specs.schema import Spec, load_spec
from steelyard.specs.sources import Table
from steelyard.studies.comparison import mean_and_sd
from steelyard.studies.grid_axes import NOTHING, Axis, Choices, check_apart, read_axis
from steelyard.studies.grid_results import Entry, GridResults
from steelyard.studies.parallel_runs import Outcome, Watch, run_all

DIRECTIONS = ("rows", "columns", "panels")
KEYS = (*DIRECTIONS, "seeds", "metrics")


@dataclass(frozen=True)
class Cell:
    """A position in a grid, and the spec that runs there."""

    panel: str
    row: str
    column: str
    spec: Spec

    @property
    def place(self) -> tuple[str, str, str]:
        return self.panel, self.row, self.column

    @property
    def name(self) -> str:
        return name_of(self.panel, self.row, self.column)


@dataclass(frozen=True)
class Grid:
    """A spec, its overrides, and the axes along which it varies."""

    base: Table
    changes: Table
    """Overrides applied before the axes."""
    rows: Axis = NOTHING
    columns: Axis = NOTHING
    panels: Axis = NOTHING
    seeds: tuple[int, ...] = ()
    """Empty: each spec keeps its own seed."""
    metrics: tuple[str, ...] = ("accuracy",)

    @property
    def name(self) -> str:
        """The name of the spec with the overrides that all cells have."""
        return load_spec(self.base, self.changes).name

    def cells(self) -> list[Cell]:
        """Every run of the grid, seed by seed; raises an InputError that names the first invalid cell."""
        return [
            Cell(panel, row, column, self._spec(panel, row, column, seed))
            for seed in self.seeds or (None,)
            for panel in self.panels.labels
            for row in self.rows.labels
            for column in self.columns.labels
        ]

    def _spec(self, panel: str, row: str, column: str, seed: int | None) -> Spec:
        changes = dict(self.changes)
        for axis, label in ((self.panels, panel), (self.rows, row), (self.columns, column)):
            changes = sources.merge(changes, axis.choices[label])
        if seed is not None:
            changes = {**changes, "seed": seed}
        base = {**self.base, **({"preset": changes.pop("preset")} if "preset" in changes else {})}
        try:
            # Cells run in parallel, so each one runs serially unless an engine is named.
            if not any("engine" in layer for layer in (*sources.read(base), changes)):
                changes = {**changes, "engine": "serial"}
            spec = load_spec(base, changes)
            build_algorithm(spec)
        except InputError as error:
            raise InputError(f"cell {name_of(panel, row, column)}: {error}") from None
        return spec


def name_of(panel: str, row: str, column: str) -> str:
    return " × ".join(label for label in (row, column, panel) if label)


def read_grid(
    source: str | Path | Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    rows: Choices | None = None,
    columns: Choices | None = None,
    panels: Choices | None = None,
    seeds: Sequence[int] | None = None,
    metrics: Sequence[str] | None = None,
    trust: Permission = False,
) -> Grid:
    """The grid of a file, preset or table; axes given here replace those of the file."""
    base = sources.table_of(source, trust)
    table = base.pop("grid", {})
    if not isinstance(table, Mapping):
        raise InputError(f"grid should be a table, not {table!r}.")
    for key, value in table.items():
        if key not in KEYS:
            raise unknown("key", f"grid.{key}", [f"grid.{valid}" for valid in KEYS])
        if key in DIRECTIONS and not isinstance(value, Mapping):  # text would be parsed behind the gate
            raise InputError(f"grid.{key} should be a table of labels or settings, not {value!r}.")
    given = {"rows": rows, "columns": columns, "panels": panels}
    axes = {name: given[name] or table.get(name) for name in DIRECTIONS}
    if not any(axes.values()):
        raise InputError("a grid needs a setting that varies, such as --rows weighing=samples,uniform.")
    varying = {name: read_axis(name, choices) if choices else NOTHING for name, choices in axes.items()}
    numbers = tuple(_checked("seeds", int, seeds or table.get("seeds", ())))
    merged = {name: varying[name] for name in ("panels", "rows", "columns")}
    check_apart({**merged, "seeds": Axis({str(number): {"seed": number} for number in numbers} or {"": {}})})
    return Grid(
        base,
        sources.expand(overrides or {}),
        **varying,
        seeds=numbers,
        metrics=tuple(_checked("metrics", str, metrics or table.get("metrics", Grid.metrics))),
    )


def run_grid(
    grid: Grid,
    out: Path | None = Path("runs"),
    workers: int | None = 1,
    watch: Watch = lambda done, total: None,
) -> list[tuple[Cell, Outcome]]:
    """Run every cell that is not recorded under `out` yet; returns cells with outcomes (see `run_all`)."""
    cells = grid.cells()
    return list(zip(cells, run_all([cell.spec for cell in cells], out, workers, watch), strict=True))


def grid_results(grid: Grid, runs: Sequence[tuple[Cell, Outcome]], metric: str) -> GridResults:
    """Means of a metric over the seeds; a cell has none if one of its runs failed or lacks the metric."""
    known = {name for _, outcome in runs for name in outcome.metrics}
    if metric not in known:
        raise unknown("metric", metric, known - {"round"})
    by_place: dict[tuple[str, str, str], list[Outcome]] = {}
    for cell, outcome in runs:
        by_place.setdefault(cell.place, []).append(outcome)
    entries = {place: _entry(outcomes, metric) for place, outcomes in by_place.items()}
    panels, rows, columns = grid.panels, grid.rows, grid.columns
    return GridResults(
        metric,
        panels.labels,
        rows.labels,
        columns.labels,
        entries,
        panels.key,
        rows.key,
        columns.key,
        tuple(dict.fromkeys(cell.spec.seed for cell, _ in runs)),
    )


def _entry(outcomes: Sequence[Outcome], metric: str) -> Entry:
    values = tuple(outcome.metrics[metric] for outcome in outcomes if metric in outcome.metrics)
    error = next((outcome.error for outcome in outcomes if outcome.error), "")
    if len(values) < len(outcomes):
        return Entry(error=error, values=values)
    mean, sd = mean_and_sd(values)
    return Entry(mean, sd, values=values)


def _checked(name: str, kind: type, values: Any) -> Sequence[Any]:
    """The values, if they are a list of distinct values of one type."""
    typed = isinstance(values, list | tuple) and all(type(value) is kind for value in values)
    if not typed or len(set(values)) < len(values):
        what = "whole numbers" if kind is int else "names"
        raise InputError(f"grid.{name} should be a list of different {what}, not {values!r}.")
    return list(values)
