"""Small runs for the tests of observers."""

from pathlib import Path
from typing import Any

import pytest

import steelyard as sy
from steelyard.observers.base import Tracker
from steelyard.observers.facts import RunFacts
from steelyard.server.result import Result
from steelyard.types import Round

SMALL = {"data.clients": 3, "training.steps": 1}
HOSTILE = ("=HYPERLINK(1)", "../../etc", "a/b", "a_b", "<script>", "x" * 300, "Zürich", "\x1b[31mred")


class Diary(Tracker):
    """Keeps all that it is told."""

    def __init__(self, failing: str = "", error: type[BaseException] = OSError) -> None:
        self.told: list[Any] = []
        self.failing, self.error = failing, error

    def begin(self, facts: RunFacts) -> None:
        self.note("begin", facts)

    def __call__(self, round: Round) -> None:
        self.note("round", round.number)

    def end(self, status: str) -> None:
        self.note("end", status)

    def note(self, kind: str, what: Any) -> None:
        self.told.append((kind, what))
        if kind == self.failing:
            raise self.error("the disk\nis full")

    @property
    def facts(self) -> RunFacts:
        found = self.told[0][1]
        assert isinstance(found, RunFacts)
        return found


def small_run(out: Path | None, *observers: Any, rounds: int = 2, **settings: Any) -> Result:
    return sy.run("fedavg", *observers, out=out, rounds=rounds, **{**SMALL, **settings})


def interrupted_run(out: Path, *observers: Any, rounds: int = 4, after: int = 2, **settings: Any) -> Path:
    """The folder of a run that was interrupted after a round."""

    def interrupt(round: Round) -> None:
        if round.number == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(out, *observers, interrupt, rounds=rounds, **settings)
    (path,) = out.iterdir()
    return path


def one_round(number: int = 1, **clients: Any) -> Round:
    """A round with clients of hostile names."""
    rows = [
        {"client": name, "status": "used", "weight": 0.1 * place, "accuracy": 0.5, **clients}
        for place, name in enumerate(HOSTILE)
    ]
    metrics = {"used": 8.0, "loss": float("nan"), "cos(x)": 0.25}
    return Round(number, metrics, tuple(rows), {"exchange": 0.5})
