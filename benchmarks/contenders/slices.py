"""What runs of benchmarks/simulation.py found: a file of JSON for each, written after every process.

A slice is one setting with some contenders, measured in turns. Slices of a setting come together in the
tables; where two have the same contender, the newer one counts.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contenders.process import WARM_UP, Outcome


@dataclass
class Pass:
    """A contender in one pass."""

    seconds: list[float]
    """Of each timed round."""
    accuracies: list[float | None]
    """After each round, the first one included."""
    start_up: float | None
    """Seconds until the first round is done, minus a median round."""
    outside: float | None
    """Share of a round outside training and predicting, where the contender says it."""
    others: float
    """Share of the machine's processor time that went to other programs."""
    problem: str | None = None
    megabytes: float | None = None
    """Peak memory, measured in a pass of its own."""

    @property
    def middle(self) -> float:
        """Seconds of a median round."""
        return statistics.median(self.seconds)


Results = dict[str, list[Pass]]
"""{contender: its passes}."""


@dataclass
class Slice:
    """One setting, measured with some contenders in turns."""

    key: str
    title: str
    machine: str
    peak: float
    """Multiplications and additions a second of a large matrix product."""
    work: float
    """Multiplications and additions of matrix products and convolutions in a round."""
    versions: dict[str, str] = field(default_factory=dict)
    results: Results = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Contenders that cannot run on this machine, with the reason."""
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")


def passed(outcome: Outcome) -> Pass:
    """The part of an outcome that is kept."""
    rounds = outcome.rounds
    shares = [round["outside"] for round in rounds[WARM_UP:] if "outside" in round]
    ready = None
    if outcome.seconds and not outcome.problem:
        ready = outcome.first_done - rounds[0].get("exchanges", 1) * statistics.median(outcome.seconds)
    return Pass(
        [float(f"{seconds:.5g}") for seconds in outcome.seconds],
        [round["accuracy"] for round in rounds],
        ready,
        statistics.median(shares) if shares else None,
        outcome.others,
        outcome.problem,
        outcome.megabytes,
    )


def file_for(folder: Path, key: str, contenders: Sequence[str], everyone: Sequence[str]) -> Path:
    """The file of a slice: it has the name of its setting, and of its contenders if some are missing."""
    some = [] if set(contenders) == set(everyone) else list(contenders)
    return folder / f"{'-'.join([key, *some])}.json"


def read_all(folder: Path) -> list[Slice]:
    """All slices in a folder, older ones first."""
    found = []
    for path in folder.glob("*.json"):
        raw: dict[str, Any] = json.loads(path.read_text("utf-8"))
        results = {name: [Pass(**one) for one in passes] for name, passes in raw.pop("results").items()}
        found.append(Slice(**raw, results=results))
    return sorted(found, key=lambda one: one.at)


def together(slices: Iterable[Slice], order: Sequence[str]) -> dict[str, Results]:
    """{setting: results} of all slices, contenders in this order."""
    found: dict[str, Results] = {}
    for one in slices:
        found.setdefault(one.key, {}).update(one.results)
    return {
        key: {name: found[key][name] for name in [*order, *found[key]] if name in found[key]}
        for key in sorted(found)
    }


def middle(passes: Iterable[Pass]) -> float | None:
    """Median seconds of a round over all passes."""
    return median_of(passes, lambda one: one.seconds)


def median_of(passes: Iterable[Pass], values: Callable[[Pass], Iterable[float | None]]) -> float | None:
    """The median of these values over passes without a problem."""
    known = [value for one in passes if not one.problem for value in values(one) if value is not None]
    return statistics.median(known) if known else None


def times_faster(results: Mapping[str, Sequence[Pass]], name: str, reference: str) -> float | None:
    """How many times as fast as the reference a contender is: the median of the ratios within a pass."""
    pairs = zip(results.get(reference, ()), results[name], strict=False)
    ratios = [
        two.middle and one.middle / two.middle for one, two in pairs if not (one.problem or two.problem)
    ]
    return statistics.median(ratios) if ratios else None
