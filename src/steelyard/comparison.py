"""Several specs on the same seeds: mean ± sd, without running again what is already recorded."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import steelyard
from steelyard.experiment import run
from steelyard.federation import Observer
from steelyard.record import Run, runs_in
from steelyard.report.summary import summarise
from steelyard.spec import Spec, load_spec

METRICS = ("accuracy", "nll", "client_accuracy_worst10", "client_accuracy_sd")

Watch = Callable[[Spec], AbstractContextManager[Observer | None]]


def compare(
    sources: Sequence[str | Path | Mapping[str, Any]],
    seeds: Sequence[int],
    overrides: Mapping[str, Any] | None = None,
    out: Path = Path("runs"),
    watch: Watch = lambda spec: nullcontext(None),
) -> list[dict[str, Any]]:
    """A row for each source: its runs and the mean and standard deviation of their final scores."""
    changes = dict(overrides or {})
    specs = [[load_spec(source, {**changes, "seed": seed}) for seed in seeds] for source in sources]
    finished = {_key(each.meta): each for each in runs_in(out) if each.meta.get("status") == "finished"}
    rows = []
    for source, per_seed in zip(sources, specs, strict=True):
        runs = [_run(spec, finished, out, watch) for spec in per_seed]
        name = str(source) if isinstance(source, str | Path) else per_seed[0].name
        rows.append({"name": name, "metrics": _mean_and_sd(runs), "runs": [str(each.path) for each in runs]})
    return rows


def _run(spec: Spec, finished: dict[tuple[str, str], Run], out: Path, watch: Watch) -> Run:
    key = (spec.fingerprint(), steelyard.__version__)
    if key not in finished:
        with watch(spec) as observer:
            result = run(spec, *([observer] if observer else []), out=out)
        assert result.path is not None
        finished[key] = Run(result.path)
    return finished[key]


def _key(meta: Mapping[str, str]) -> tuple[str, str]:
    """Two runs with this in common give the same numbers."""
    return meta.get("fingerprint", ""), meta.get("version", "")


def _mean_and_sd(runs: Sequence[Run]) -> dict[str, dict[str, float | None]]:
    finals = [summarise(each)["metrics"] for each in runs]
    table: dict[str, dict[str, float | None]] = {}
    for name in METRICS:
        values = [final[name] for final in finals if name in final]
        if len(values) == len(finals):
            sd = statistics.stdev(values) if len(values) > 1 else None
            table[name] = {"mean": statistics.fmean(values), "sd": sd}
    return table
