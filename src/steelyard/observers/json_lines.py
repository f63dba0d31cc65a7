"""A run as JSON lines: one object a round."""

import json
import os
from pathlib import Path

from steelyard.observers.base import Tracker
from steelyard.observers.facts import RunFacts, place_for, refuse_existing
from steelyard.texts import finite
from steelyard.types import Round


class JSONLines(Tracker):
    """One JSON object a round in `rounds.jsonl`: its metrics, wall times, and every client.

    By default the file is in the folder of the run; `path` is another file. Every round is there as soon as
    it is complete. NaN and infinity are null.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        self._place = Path()

    def begin(self, facts: RunFacts) -> None:
        self._place = place_for(self.path, "rounds.jsonl", facts)
        refuse_existing([self._place], facts)
        self._place.parent.mkdir(parents=True, exist_ok=True)
        if facts.after is not None and self._place.exists():
            _keep_up_to(self._place, facts.after)

    def __call__(self, round: Round) -> None:
        content = {
            "round": round.number,
            "metrics": round.metrics,
            "seconds": round.seconds,
            "clients": [dict(row) for row in round.clients],
        }
        with self._place.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(content)) + "\n")


def _keep_up_to(path: Path, round: int) -> None:
    """Remove later rounds, and a last line that was not written to its end."""
    *lines, _ = path.read_text("utf-8").split("\n")
    try:
        kept = [line for line in lines if json.loads(line)["round"] <= round]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{path} was not written by this observer") from None
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text("".join(f"{line}\n" for line in kept), "utf-8")
    os.replace(partial, path)
