"""Compare specs on the same seeds: mean ± standard deviation of their scores. Recorded runs are reused."""

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from steelyard.errors import SteelyardWarning, unknown
from steelyard.runs.reader import Run
from steelyard.runs.summary import final_scores
from steelyard.server.observing import Observer
from steelyard.specs.gate import Permission
from steelyard.specs.running import run_or_resume
from steelyard.specs.schema import Spec, load_spec
from steelyard.specs.sources import table_of
from steelyard.studies.parallel_runs import Key, key_of, recorded_runs

METRICS = ("accuracy", "nll", "mse", "client_accuracy_worst10", "client_accuracy_sd", "client_mse")
"""Those that all runs have are compared, unless others are asked for."""

Watch = Callable[[Spec], AbstractContextManager[Observer | None]]
"""Opened around each run; yields the observer of its rounds, if any."""


def compare(
    sources: Sequence[str | Path | Mapping[str, Any]],
    seeds: Sequence[int],
    overrides: Mapping[str, Any] | None = None,
    out: Path = Path("runs"),
    watch: Watch = lambda spec: nullcontext(None),
    trust: Permission = False,
    metrics: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """One row per source: its runs, and mean and standard deviation of their final scores."""
    changes = dict(overrides or {})
    tables = [table_of(source, trust) for source in sources]  # asks once about a file
    specs = [[load_spec(table, {**changes, "seed": seed}) for seed in seeds] for table in tables]
    finished, unfinished = recorded_runs(out)
    rows = []
    for source, per_seed in zip(sources, specs, strict=True):
        runs = [_run(spec, finished, unfinished, out, watch) for spec in per_seed]
        name = str(source) if isinstance(source, str | Path) else load_spec(source).name
        rows.append(row_of(name, runs, metrics))
    return rows


def row_of(name: str, runs: Sequence[Run], metrics: Sequence[str] | None = None) -> dict[str, Any]:
    """Mean and standard deviation of the final scores of runs, those that are asked for or the usual ones."""
    warned = {str(run.path): text for run in runs if (text := run.meta.get("warning"))}
    return {
        "name": name,
        "metrics": _scores(runs, metrics),
        "runs": [str(run.path) for run in runs],
        "seeds": sorted(run.spec["seed"] for run in runs if "seed" in run.spec),
        "warnings": warned,
    }


def mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation; the latter is None for one value, or if some are not finite."""
    defined = len(values) > 1 and all(map(math.isfinite, values))
    return statistics.fmean(values), statistics.stdev(values) if defined else None


def _run(
    spec: Spec, finished: dict[Key, Run], unfinished: Mapping[Key, Path], out: Path, watch: Watch
) -> Run:
    key = key_of(spec)
    if key not in finished:
        with watch(spec) as observer, warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)  # they are recorded
            result = run_or_resume(spec, unfinished.get(key), *([observer] if observer else []), out=out)
        assert result.path is not None
        finished[key] = Run(result.path)
    return finished[key]


def _scores(runs: Sequence[Run], metrics: Sequence[str] | None) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation of the final scores that every run has."""
    finals = [final_scores(run.rounds)["metrics"] for run in runs]
    table: dict[str, dict[str, float | None]] = {}
    for name in metrics or METRICS:
        if metrics and not any(name in final for final in finals):
            raise unknown("metric", name, {each for final in finals for each in final})
        if all(name in final for final in finals):
            mean, sd = mean_and_sd([final[name] for final in finals])
            table[name] = {"mean": mean, "sd": sd}
    return table
