"""The runs that a page may show: one run, or those of a folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.errors import InputError
from steelyard.page.fields import whole_number
from steelyard.page.messages import marks
from steelyard.runs.folder import DATABASE
from steelyard.runs.reader import Run
from steelyard.runs.summary import describe_spec
from steelyard.texts import finite

SCORES = ("accuracy", "mse", "test_loss", "client_accuracy", "client_mse", "client_test_loss")
"""The score of a run in the list: the first of these that it has."""


class Listing:
    """The runs of a page. What the list shows of a run is read again only when its record has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.is_run = (self.path / DATABASE).is_file()
        if not self.is_run and not self.path.is_dir():
            raise InputError(f"{path} is neither a recorded run nor a folder of runs.")
        self._rows: dict[str, tuple[object, dict[str, Any]]] = {}

    def paths(self) -> dict[str, Path]:
        """The runs by their names."""
        if self.is_run:
            return {self.path.name: self.path}
        found = (path.parent for path in self.path.glob(f"*/{DATABASE}"))
        return {path.name: path for path in found if not path.name.startswith(".")}

    def find(self, name: str) -> Path | None:
        """The folder of a run; names come from the address of a request, so they are only compared."""
        return self.paths().get(name)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each run, newest first."""
        known, self._rows = self._rows, {}
        for name, path in sorted(self.paths().items(), reverse=True):
            seen = marks(path)
            before = known.get(name)
            self._rows[name] = before if before is not None and before[0] == seen else (seen, row_of(path))
        return [row for _, row in self._rows.values()]


def row_of(path: Path) -> dict[str, Any]:
    """A run in one row; a record that cannot be read is a row, too."""
    row: dict[str, Any] = {"key": path.name, "name": path.name, "about": "", "done": 0}
    row |= dict.fromkeys(("planned", "score", "score_name", "rule", "seed", "started", "seconds", "error"))
    try:
        facts = finite(_facts(Run(path)))
        json.dumps(facts)
    except Exception as error:  # the record may be damaged in any way
        return row | {"status": "unreadable", "error": str(error)}
    return row | dict(facts)


def _facts(run: Run) -> dict[str, Any]:
    meta, spec, rounds = run.meta, run.spec, run.rounds
    name, score = _last_score(rounds)
    return {
        "name": meta.get("name", run.path.name),
        "about": meta.get("about") or describe_spec(spec),
        "status": meta.get("status", "not started"),
        "error": meta.get("error"),
        "done": len(rounds),
        "planned": whole_number(meta.get("rounds")) or spec.get("rounds"),
        "score": score,
        "score_name": name,
        "rule": spec.get("weighing", {}).get("name") or meta.get("rule"),
        "seed": spec.get("seed"),
        "started": meta.get("started"),
        "seconds": sum(value or 0.0 for row in run.timings for key, value in row.items() if key != "round"),
    }


def _last_score(rounds: Sequence[Mapping[str, Any]]) -> tuple[str | None, float | None]:
    for name in SCORES:
        values = [row[name] for row in rounds if row.get(name) is not None]
        if values:
            return name, values[-1]
    return None, None
