"""The series of a run that the page draws, built up as rounds come in; their size is limited."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.page.bins import Binned, LastCode, bin_note, bin_ranges, plain
from steelyard.verdicts.batch import ABSENT, REJECTED, Batch, Matrix

MAX_CELLS = 300_000  # of the heat map
MAX_FIGURES = 700_000  # of all evidence columns together
MAX_BINS = 600  # of the heat map and of evidence
MAX_POINTS = 1500  # of metrics of the rounds
LABELS = {
    "norm": "length of the update (norm)",
    "loss": "training loss that the client reported",
    "num_examples": "examples that the client reported",
    "steps": "training steps that the client reported",
    "accuracy": "accuracy on the client's own test data",
    "mse": "mean squared error on the client's own test data",
    "test_loss": "loss on the client's own test data",
    "statistics_cut": "part of its running statistics that was cut off",
}
Json = dict[str, Any]


class Cells:
    """Weights and rejections, client by round."""

    def __init__(self, clients: int) -> None:
        limit = max(1, min(MAX_BINS, MAX_CELLS // max(clients, 1)))
        self.weight, self.rejected, self.reason = Binned(limit), Binned(limit), LastCode()

    def add(self, batch: Batch, chosen: Sequence[int]) -> None:
        """Add rounds, of the chosen clients."""
        status = batch.status[:, chosen]
        width = self.weight.width
        self.weight.add(batch.rounds, np.where(status == ABSENT, np.nan, batch.column("weight")[:, chosen]))
        self.rejected.add(batch.rounds, (status >= REJECTED).astype(np.float64))
        while width < self.weight.width:
            self.reason.widen()
            width *= 2
        rows, columns = np.nonzero(status >= REJECTED)
        bins = (batch.rounds[rows] - 1) // width
        self.reason.add(
            bins.tolist(), columns.tolist(), (status[rows, columns] - REJECTED).tolist(), self.weight
        )

    def json(self, last: int, start: int = 0) -> Json:
        return {
            "bins": bin_ranges(len(self.weight), self.weight.width, last, start),
            "note": bin_note(self.weight.width, last),
            "weight": plain(self.weight.means(start), 3),
            "rejected": self.rejected.sums[start:].astype(int).tolist(),
            "reason": self.reason.codes[start:].tolist(),
        }


class Evidence:
    """All other figures of clients."""

    def __init__(self, clients: int, columns: Sequence[tuple[str, str]]) -> None:
        """`columns` are names and labels."""
        limit = max(1, min(MAX_BINS, MAX_FIGURES // max(clients * len(columns), 1)))
        self.columns = [(name, label, Binned(limit)) for name, label in columns]

    def add(self, batch: Batch, chosen: Sequence[int]) -> None:
        for name, _, binned in self.columns:
            binned.add(batch.rounds, batch.column(name)[:, chosen])

    @property
    def first(self) -> Binned | None:
        """All columns have the same bins."""
        return self.columns[0][2] if self.columns else None

    def json(self, last: int) -> Json:
        first = self.first
        return {
            "bins": [] if first is None else bin_ranges(len(first), first.width, last),
            "note": None if first is None else bin_note(first.width, last),
            "columns": [
                {"name": name, "label": label, "values": plain(binned.means(), 3)}
                for name, label, binned in self.columns
            ],
        }

    def tail(self, last: int, start: int) -> Json:
        first = self.first
        return {
            "bins": [] if first is None else bin_ranges(len(first), first.width, last, start),
            "note": None if first is None else bin_note(first.width, last),
            "columns": [plain(binned.means(start), 3) for _, _, binned in self.columns],
        }


def evidence_columns(found: Iterable[str], reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and labels of the columns to show, the rule's own evidence first."""
    known = [name for name in found if name not in ("weight", "adversary")]
    own = [name for name in known if name in reasons]
    others = [name for name in known if name not in reasons and name not in LABELS]
    usual = [name for name in LABELS if name in known and name not in reasons]
    labels = {**{name: name.replace("_", " ") for name in known}, **reasons, **LABELS}
    return [(name, labels[name]) for name in (*own, *others, *usual)]


class RoundSeries:
    """A table with a row for each round: metrics, or timings. Columns may appear later."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.binned = Binned(MAX_POINTS)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            for name in row:
                if name != "round":
                    self.names.setdefault(name, len(self.names))
        if rows:
            self.binned.add(np.array([row["round"] for row in rows]), self._matrix(rows))

    def _matrix(self, rows: Sequence[Mapping[str, Any]]) -> Matrix:
        values = [[row.get(name) for name in self.names] for row in rows]
        figures = [[each if isinstance(each, int | float) else np.nan for each in row] for row in values]
        return np.array(figures, np.float64).reshape(len(rows), len(self.names))

    def columns(self, start: int = 0) -> Json:
        """{name: values}, without columns in which nothing is known."""
        means = self.binned.means(start)
        known = self.binned.counts.sum(axis=0)
        found = zip(self.names, plain(means.T, 4), known, strict=True)
        return {name: values for name, values, there in found if there > 0}
