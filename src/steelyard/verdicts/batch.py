"""The rows of some rounds as matrices: one row a round, one column a client."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

ABSENT, USED, REJECTED = 0, 1, 2
"""Codes of a status: the client did not take part; its reply was used; it was not, for the first reason."""
TEXTS = frozenset({"round", "client", "status", "evaluation"})
"""Columns of the table of clients that are not figures."""
MAX_KINDS = 1000
OTHER = "another reason"
_FIGURES = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


def kind_of(reason: str) -> str:
    """A reason without its figures, which differ from round to round."""
    return _FIGURES.sub("…", reason)


@dataclass
class Names:
    """Numbers for clients and for kinds of reasons why replies were not used, in the order of appearance."""

    clients: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)

    def code(self, status: str | None) -> int:
        """The code of a status. There is a limit to the kinds, because clients can cause any number."""
        if status == "used" or status is None:
            return USED
        if status == "idle":
            return ABSENT
        kind = kind_of(status)
        if kind not in self.kinds and len(self.kinds) >= MAX_KINDS:
            kind = OTHER
        return REJECTED + self.kinds.setdefault(kind, len(self.kinds))


class Rejected(NamedTuple):
    """A reply that was not used."""

    round: int
    client: int
    reason: str


@dataclass(frozen=True, eq=False)
class Batch:
    """R rounds of C clients."""

    rounds: NDArray[np.int64]
    """[R], ascending."""
    status: NDArray[np.int32]
    """[R, C], codes of `Names.code`."""
    columns: Mapping[str, Matrix]
    """[R, C] each; nan where the record has no number."""
    rejected: Sequence[Rejected]
    """In the order of rounds."""

    def column(self, name: str) -> Matrix:
        """A column, all nan if the record does not have it."""
        found = self.columns.get(name)
        return np.full(self.status.shape, np.nan) if found is None else found


def make_batch(names: Names, columns: Mapping[str, Sequence[Any]]) -> Batch:
    """A batch from the columns of the table of clients, in the order of rounds.

    New clients and reasons are added to the names.
    """
    clients, numbers = names.clients, np.array(columns["round"], np.int64)
    texts = columns.get("status") or [None] * len(numbers)
    which = np.array([clients.setdefault(name, len(clients)) for name in columns["client"]], np.int64)
    codes = np.array([names.code(text) for text in texts], np.int32)
    rounds, where = np.unique(numbers, return_inverse=True)
    status = np.zeros((len(rounds), len(clients)), np.int32)
    status[where, which] = codes
    matrices = {}
    for name, values in columns.items():
        if name not in TEXTS:
            matrices[name] = np.full(status.shape, np.nan)
            matrices[name][where, which] = _figures(values)
    places = np.flatnonzero(codes >= REJECTED).tolist()
    rejected = [Rejected(int(numbers[each]), int(which[each]), str(texts[each])) for each in places]
    return Batch(rounds, status, matrices, rejected)


def _figures(values: Sequence[Any]) -> Matrix:
    """Numbers as float64; None, and in a damaged record anything else, is nan."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        return np.array([value if isinstance(value, int | float) else np.nan for value in values], np.float64)


def columns_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of rows, each of which may lack some."""
    table = list(rows)
    names = dict.fromkeys(name for row in table for name in row)
    return {name: [row.get(name) for row in table] for name in names}
