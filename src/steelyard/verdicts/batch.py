"""The rows of some rounds as matrices: one row a round, one column a client."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

ABSENT, USED = 0, 1
"""Codes of a status: the client did not take part; its reply was used. Higher codes are reasons."""
TEXTS = frozenset({"client", "status", "evaluation"})
"""Columns of the record that are texts."""


@dataclass
class Names:
    """Numbers for clients and for the reasons why replies were not used, in the order of appearance."""

    clients: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=lambda: {"idle": ABSENT, "used": USED})

    @property
    def reasons(self) -> list[str]:
        """Reason n has the status n + 2."""
        return list(self.statuses)[2:]


@dataclass(frozen=True, eq=False)
class Batch:
    """R rounds of C clients."""

    rounds: NDArray[np.int64]
    """[R], ascending."""
    status: NDArray[np.int32]
    """[R, C], codes of `Names.statuses`."""
    columns: Mapping[str, Matrix]
    """[R, C] each; nan where the record has no number."""

    def column(self, name: str) -> Matrix:
        """A column, all nan if the record does not have it."""
        found = self.columns.get(name)
        return np.full(self.status.shape, np.nan) if found is None else found


def make_batch(names: Names, columns: Mapping[str, Sequence[Any]]) -> Batch:
    """A batch from the columns of the table of clients; new clients and reasons are added to the names."""
    clients, statuses = names.clients, names.statuses
    which = np.array([clients.setdefault(name, len(clients)) for name in columns["client"]], np.int64)
    codes = [statuses.setdefault(text, len(statuses)) for text in columns["status"]]
    rounds, where = np.unique(np.array(columns["round"], np.int64), return_inverse=True)
    shape = (len(rounds), len(clients))
    status = np.zeros(shape, np.int32)
    status[where, which] = codes
    matrices = {}
    for name, values in columns.items():
        if name in TEXTS or name == "round":
            continue
        matrices[name] = np.full(shape, np.nan)
        matrices[name][where, which] = _numbers(values)
    return Batch(rounds, status, matrices)


def _numbers(values: Sequence[Any]) -> Matrix:
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
