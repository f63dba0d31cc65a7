"""Curves over the rounds: mean and standard deviation over runs of equal settings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.runs.reader import Run
from steelyard.studies.comparison import mean_and_sd


@dataclass(frozen=True)
class Curve:
    """One metric over the rounds."""

    rounds: tuple[int, ...]
    means: tuple[float, ...]
    sds: tuple[float | None, ...]
    """Over the runs; None where there is one run."""
    runs: int


def curve_of(runs: Iterable[str | Path], metric: str) -> Curve:
    """The mean of a metric over runs, in the rounds in which all of them have it."""
    by_run = [_values(Run(path).rounds, metric) for path in runs]
    shared = sorted(set.intersection(*(set(values) for values in by_run)))
    pairs = [mean_and_sd([values[number] for values in by_run]) for number in shared]
    return Curve(tuple(shared), tuple(mean for mean, _ in pairs), tuple(sd for _, sd in pairs), len(by_run))


def groups_of(runs: Sequence[Path]) -> list[list[Path]]:
    """Runs with equal settings, apart from the seeds; runs that came from no spec are on their own."""
    found: dict[str, list[Path]] = {}
    for path in runs:
        spec = Run(path).spec
        found.setdefault(_settings(spec) if spec else str(path), []).append(path)
    return list(found.values())


def _settings(spec: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in spec.items() if key not in ("seed", "name", "about")}
    kept["data"] = {key: value for key, value in spec.get("data", {}).items() if key != "seed"}
    return json.dumps(kept, sort_keys=True)


def _values(rows: Iterable[Mapping[str, Any]], metric: str) -> dict[int, float]:
    return {row["round"]: row[metric] for row in rows if row.get(metric) is not None}
