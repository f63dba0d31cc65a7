"""An experiment of many runs: every cell of it is a method in a setting with a seed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from steelyard.errors import SteelyardError
from steelyard.runs.reader import Run
from steelyard.specs.schema import Spec
from steelyard.studies.parallel_runs import run_all

Results = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""Study → setting → method → seed → what came of the run."""


class Cell(NamedTuple):
    """One run."""

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
    """Run what is not recorded under `out` yet, and sum every run up."""
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
