"""Runs in which hostile clients send fuzzed answers, beside the same runs without them."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from fuzzed_answers import Fuzzer
from scripted_sites import ScriptedSites, recorded_run

from steelyard.runs.reader import Run
from steelyard.server.reasons import MAX_REASON

HONEST = [f"honest-{number:02d}" for number in range(60)]
HOSTILE = [f"hostile-{number:03d}" for number in range(100)]
OWN = ("status", "num_examples", "loss", "steps", "norm", "accuracy", "evaluation")
"""What the row of a client says that no other client may change."""


class Findings(NamedTuple):
    answers: int
    used: int
    rejected: int
    unscored: int
    changed: int
    """Rows of honest clients that differ from those of the run without hostile ones."""
    bad_texts: int
    """Reasons that are too long or have control characters."""
    not_finite: int
    """Metrics of rounds that are not finite."""
    bad_columns: int
    """Columns that no honest client has, and rows of no client."""


def fuzz(folder: Path, rounds: int, posterior: bool, seed: int, **settings: Any) -> Findings:
    """Run with and without hostile clients, and compare the records."""
    fuzzer = Fuzzer(seed)
    attacked = recorded_run(
        folder / "attacked", ScriptedSites(HONEST, HOSTILE, fuzzer), rounds, posterior, **settings
    )
    clean = recorded_run(folder / "clean", ScriptedSites(HONEST), rounds, posterior, **settings)
    return compare(attacked, clean, fuzzer.answers)


def compare(attacked: Run, clean: Run, answers: int) -> Findings:
    rows = attacked.clients
    wanted = {(row["round"], row["client"]): row for row in clean.clients}
    honest, hostile = set(HONEST), set(HOSTILE)
    mine = [row for row in rows if row["client"] in honest]
    theirs = [row for row in rows if row["client"] in hostile]
    changed = sum(
        any(row[name] != wanted[row["round"], row["client"]].get(name) for name in OWN if name in row)
        for row in mine
    )
    texts = [text for row in theirs for text in (row["status"], row.get("evaluation")) if text is not None]
    columns = {name for row in rows for name in row} - {name for row in wanted.values() for name in row}
    return Findings(
        answers,
        sum(row["status"] == "used" for row in theirs),
        sum(row["status"] != "used" for row in theirs),
        sum(row.get("evaluation") is not None for row in theirs),
        changed + len(wanted) - len(mine),
        sum(not text.isprintable() or not 0 < len(text) <= MAX_REASON for text in texts),
        sum(
            value is not None and not math.isfinite(value)
            for row in attacked.rounds
            for value in row.values()
        ),
        len(columns - {"evaluation"}) + len(rows) - len(mine) - len(theirs),
    )
