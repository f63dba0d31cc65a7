"""Clients that hold rows of a table, each with its own columns (Fig. 3 of completely heterogeneous FL).

All clients are tested on the same rows, each on its own columns. No client trains on these rows. So a client
with few rows, or with a single class, is still tested on many rows and on all classes.

Medians, scales and categories are fitted by each client on its own training rows alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.data import tables
from steelyard.data.clients import Client
from steelyard.data.heterogeneous import HeterogeneousDataset, Split
from steelyard.data.preparation import Preparation
from steelyard.data.tables import SOURCE as SOURCE
from steelyard.data.tables import Table
from steelyard.errors import InputError
from steelyard.seeds import generator

MIN_COLUMNS = 2


@dataclass(frozen=True, eq=False)
class SlicedTable(HeterogeneousDataset):
    """A table of which every client holds some rows and some columns."""

    table: Table
    share: float
    """The share of the columns that a client has."""
    test: float
    """The share of the rows that all clients are tested on; no client trains on them."""

    def deal(self, split: Split, clients: int, seed: int) -> list[Client]:
        labels = self.table.labels
        train, test = stratified_split(labels, self.test, generator(seed, "table-test"))
        rows = [train[part] for part in split(labels[train], clients, self.name)]
        return deal_table(self.table, rows, test, seed, self.share)


def _sliced(table: Table, share: float, test: float) -> SlicedTable:
    return SlicedTable(table.name, table.class_names, table, share, test)


def adult(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Income above 50 000 dollars? 48 842 people, 14 columns; each client has a `share` of them."""
    return _sliced(tables.adult(), share, test)


def hcc(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """One-year survival of liver cancer? 165 patients, 49 columns; each client has a `share` of them."""
    return _sliced(tables.hcc(), share, test)


def bcd(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Malignant breast cancer? 699 samples, 9 columns; each client has a `share` of them."""
    return _sliced(tables.bcd(), share, test)


def ilpd(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Liver patient? 583 people, 10 columns; each client has a `share` of them."""
    return _sliced(tables.ilpd(), share, test)


def feature_slices(count: int, clients: int, share: float, generator: torch.Generator) -> list[Tensor]:
    """The column positions of each client: a random share, sorted; slices may overlap.

    If the slices together have room for all columns, every column is in at least one.
    """
    if count < MIN_COLUMNS or clients < 1:
        raise InputError(
            f"slices need at least {MIN_COLUMNS} columns and 1 client, not {count} and {clients}."
        )
    _check_share(share)
    size = max(MIN_COLUMNS, math.ceil(round(share * count, 9)))  # 0.07 · 100 is a little above 7
    chosen = torch.zeros(clients, count, dtype=torch.bool)
    for row in chosen:
        row[torch.randperm(count, generator=generator)[:size]] = True
    for column in (~chosen.any(dim=0)).nonzero().flatten().tolist():
        shared = (chosen & (chosen.sum(dim=0) > 1)).nonzero()  # (client, column) that another client has too
        if len(shared) == 0:
            break
        client, replaced = shared[int(torch.randint(len(shared), (), generator=generator))].tolist()
        chosen[client, replaced], chosen[client, column] = False, True
    return [row.nonzero().flatten() for row in chosen]


def stratified_split(labels: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Training and test positions with the same class mix, as far as whole rows allow; `share` is for tests.

    Every class has at least one training row, and there is at least one test row.
    """
    if not 0 < share < 1:
        raise InputError(f"test must be between 0 and 1, and neither of them, not {share}.")
    present = torch.unique(labels)
    if len(labels) <= len(present):
        raise InputError(f"{len(labels)} rows of {len(present)} classes leave none to test on.")
    order = torch.randperm(len(labels), generator=generator)
    turns = torch.zeros(len(labels), dtype=torch.float64)
    for label in present:
        rows = (labels[order] == label).nonzero().flatten()
        # The rows of a class get turns at equal distances in (0, 1), so the lowest turns have the class mix.
        turns[rows] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
        turns[rows[-1]] = torch.inf  # always a training row
    size = min(max(round(share * len(labels)), 1), len(labels) - len(present))
    drawn = order[turns.argsort(stable=True)]
    return drawn[size:].sort().values, drawn[:size].sort().values


def deal_table(
    table: Table, rows: Sequence[Tensor], test: Tensor, seed: int, share: float = 0.5
) -> list[Client]:
    """Clients that train on the given rows, each with a random `share` of the columns; `test` is for all.

    Targets are labels of the whole table, also if a client lacks some classes.
    """
    _check_share(share)
    width = len(str(len(rows) - 1))
    ids = [f"client-{number:0{width}d}" for number in range(len(rows))]
    _check_rows(len(table), [*ids, "the test"], [*rows, test])
    slices = feature_slices(len(table.columns), len(rows), share, generator(seed, "feature-slices"))
    clients = []
    for id, train, places in zip(ids, rows, slices, strict=True):
        columns = [table.columns[place] for place in places.tolist()]
        preparation = Preparation.fit(columns, train)
        inputs = preparation.apply(train)
        if inputs.shape[1] == 0:
            names = ", ".join(column.name for column in columns)
            raise InputError(
                f"{id}: all values of {names} are missing in training: raise share, or give it more rows."
            )
        test_data = (preparation.apply(test), table.labels[test])
        clients.append(Client(id, (inputs, table.labels[train]), test_data))
    return clients


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1, not {share}.")


def _check_rows(count: int, ids: Sequence[str], rows: Sequence[Tensor]) -> None:
    """Raise an InputError for rows that are empty, not in the table, or given twice."""
    if len(ids) < 2:
        raise InputError("rows are empty: give the row positions of at least one client.")
    uses = torch.zeros(count, dtype=torch.int64)
    for id, part in zip(ids, rows, strict=True):
        if part.dim() != 1 or part.dtype != torch.int64:
            raise InputError(f"{id}: its rows should be a vector of row positions (int64).")
        if len(part) == 0:
            raise InputError(f"{id} has no rows: give it some or take fewer clients.")
        if int(part.min()) < 0 or int(part.max()) >= count:
            raise InputError(
                f"{id} has rows that are not in the table: they should be from 0 to {count - 1}."
            )
        uses += torch.bincount(part, minlength=count)
        if int(uses.max()) > 1:
            raise InputError(
                f"{id} has row {int(uses.argmax())}, which is already in use: give each row once."
            )
