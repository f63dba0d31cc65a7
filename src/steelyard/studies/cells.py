"""Experiments of many runs: one run for each setting, method and seed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from steelyard.errors import SteelyardError
from steelyard.runs.reader import Run
from steelyard.specs.schema import Spec
from steelyard.studies.parallel_runs import run_all

Results = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""{study: {setting: {method: {seed: summary of the run}}}}."""


class Cell(NamedTuple):
    """One run of a study: a method in a setting, with a seed."""

    study: str
    setting: str
    method: str
    seed: int
    spec: Spec


def run_cells(
    cells: Iterable[Cell],
    out: Path,
    summary: Callable[[Cell, Run], dict[str, Any]],
    workers: int | None = None,
    say: Callable[[str], Any] = print,
) -> Results:
    """Run the cells that are not recorded under `out` yet, and summarise every one with `summary`."""
    todo = list(cells)
    specs = [cell.spec for cell in todo]
    outcomes = run_all(specs, out, workers, lambda done, total: say(f"{done} of {total} runs"))
    results: Results = {}
    for cell, outcome in zip(todo, outcomes, strict=True):
        if outcome.path is None:
            raise SteelyardError(
                f"{cell.study}, {cell.setting}, {cell.method}, seed {cell.seed}: {outcome.error}"
            )
        setting = results.setdefault(cell.study, {}).setdefault(cell.setting, {})
        setting.setdefault(cell.method, {})[str(cell.seed)] = summary(cell, Run(outcome.path))
    return results
