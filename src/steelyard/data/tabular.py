"""Clients that hold rows of a table, each with columns of its own (Fig. 3 of completely heterogeneous FL).

They are tested on the same rows, which nobody trains on, each by its own columns: so a client with few rows,
or with one class alone, is still tested on many, and on all classes.

Whatever is learned about the data (medians, scales, categories) is learned by a client from its own training
rows: neither its test rows nor the rows of others have a say.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.data import tables
from steelyard.data.clients import Client
from steelyard.data.heterogeneous import HeterogeneousDataset, Split
from steelyard.data.tables import SOURCE as SOURCE
from steelyard.data.tables import Column, Table
from steelyard.errors import InputError
from steelyard.seeds import generator

FEWEST_COLUMNS = 2


@dataclass(frozen=True, eq=False)
class Sliced(HeterogeneousDataset):
    """A table of which every client holds some rows and some columns."""

    table: Table
    share: float
    """Of the columns that a client has."""
    test: float
    """Of the rows that nobody trains on: every client is tested on all of them, as its columns show them."""

    def deal(self, split: Split, clients: int, seed: int) -> list[Client]:
        labels = self.table.labels
        train, test = stratified_split(labels, self.test, generator(seed, "table-test"))
        rows = [train[mine] for mine in split(labels[train], clients, self.name)]
        return deal_table(self.table, rows, test, seed, self.share)


def _sliced(table: Table, share: float, test: float) -> Sliced:
    return Sliced(table.name, table.class_names, table, share, test)


def adult(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Who earns more than 50,000 dollars? 48 842 people, 14 columns; each client has a `share` of them."""
    return _sliced(tables.adult(), share, test)


def hcc(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Who survives liver cancer for a year? 165 patients, 49 columns; each client has a `share` of them."""
    return _sliced(tables.hcc(), share, test)


def bcd(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Is it breast cancer? 699 samples, 9 columns; each client has a `share` of them."""
    return _sliced(tables.bcd(), share, test)


def ilpd(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Is the liver ill? 583 patients, 10 columns; each client has a `share` of them."""
    return _sliced(tables.ilpd(), share, test)


@dataclass(frozen=True)
class Scaling:
    """A gap becomes the median, then the training rows get mean 0 and variance 1, or 0 if all are alike."""

    median: float
    mean: float
    scale: float
    """1 / standard deviation, which divides by N; 0 for a constant column."""
    marked: bool
    """Whether a further feature says which values were missing."""

    @classmethod
    def fit(cls, values: Tensor) -> "Scaling":
        gaps = values.isnan()
        median = 0.0 if bool(gaps.all()) else float(values.nanquantile(0.5))
        filled = values.nan_to_num(median)
        constant = bool(filled.min() == filled.max())
        scale = 0.0 if constant else 1 / float(filled.std(correction=0))
        return cls(median, float(filled.mean()), scale, bool(gaps.any()))

    def apply(self, values: Tensor) -> Tensor:
        scaled = (values.nan_to_num(self.median) - self.mean) * self.scale
        return torch.stack([scaled, values.isnan().double()] if self.marked else [scaled], dim=1)


@dataclass(frozen=True)
class OneHot:
    """A feature for each category that was seen in training; any other, or a gap, is 0 in all of them."""

    seen: tuple[int, ...]

    @classmethod
    def fit(cls, codes: Tensor) -> "OneHot":
        return cls(tuple(torch.unique(codes[codes >= 0]).tolist()))

    def apply(self, codes: Tensor) -> Tensor:
        return (codes[:, None] == torch.tensor(self.seen, dtype=torch.int64)).double()


@dataclass(frozen=True, eq=False)
class Preparation:
    """How columns become the inputs of a model."""

    columns: tuple[Column, ...]
    steps: tuple[Scaling | OneHot, ...]

    @classmethod
    def fit(cls, columns: Sequence[Column], rows: Tensor) -> "Preparation":
        """Learn from these rows and from no others."""
        if len(rows) == 0:
            raise InputError("a preparation needs at least one training row to learn from.")
        steps: list[Scaling | OneHot] = []
        for column in columns:
            own = column.values[rows]
            steps.append(Scaling.fit(own) if column.numeric else OneHot.fit(own))
        return cls(tuple(columns), tuple(steps))

    def apply(self, rows: Tensor) -> Tensor:
        """The inputs of these rows, [n, features]."""
        pairs = zip(self.columns, self.steps, strict=True)
        return torch.cat([step.apply(column.values[rows]) for column, step in pairs], dim=1).float()


def feature_slices(count: int, clients: int, share: float, generator: torch.Generator) -> list[Tensor]:
    """The columns of each client: a random share, sorted; others may have the same.

    If the clients have room for all columns together, every column belongs to at least one.
    """
    if count < FEWEST_COLUMNS or clients < 1:
        raise InputError(
            f"slices need at least {FEWEST_COLUMNS} columns and 1 client, not {count} and {clients}."
        )
    _check_share(share)
    size = max(FEWEST_COLUMNS, math.ceil(round(share * count, 9)))  # 0.07 · 100 is a little above 7
    held = torch.zeros(clients, count, dtype=torch.bool)
    for mine in held:
        mine[torch.randperm(count, generator=generator)[:size]] = True
    for column in (~held.any(dim=0)).nonzero().flatten().tolist():
        spare = (held & (held.sum(dim=0) > 1)).nonzero()  # who has what another has too
        if len(spare) == 0:
            break
        client, given_up = spare[int(torch.randint(len(spare), (), generator=generator))].tolist()
        held[client, given_up], held[client, column] = False, True
    return [mine.nonzero().flatten() for mine in held]


def stratified_split(labels: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positions to train on and to test on, with the same mix of classes as far as whole rows allow.

    Every class has a row to train on, and there is at least one row to test on.
    """
    if not 0 < share < 1:
        raise InputError(f"test must be between 0 and 1, and neither of them, not {share}.")
    present = torch.unique(labels)
    if len(labels) <= len(present):
        raise InputError(f"{len(labels)} rows of {len(present)} classes leave none to test on.")
    order = torch.randperm(len(labels), generator=generator)
    turns = torch.zeros(len(labels), dtype=torch.float64)
    for label in present:
        own = (labels[order] == label).nonzero().flatten()
        # Rows of a class take turns at equal distances, so the first turns of all classes are a fair mix.
        turns[own] = (torch.arange(len(own), dtype=torch.float64) + 0.5) / len(own)
        turns[own[-1]] = torch.inf  # the one that is always trained on
    held = min(max(round(share * len(labels)), 1), len(labels) - len(present))
    drawn = order[turns.argsort(stable=True)]
    return drawn[held:].sort().values, drawn[:held].sort().values


def deal_table(
    table: Table, rows: Sequence[Tensor], test: Tensor, seed: int, share: float = 0.5
) -> list[Client]:
    """Clients that hold the given rows to train on and, each, a random `share` of the columns; all are tested
    on the rows `test`.

    Targets are numbers of the table's classes, whether or not a client has rows of all.
    """
    _check_share(share)
    width = len(str(len(rows) - 1))
    ids = [f"client-{number:0{width}d}" for number in range(len(rows))]
    _check_rows(len(table), [*ids, "the test"], [*rows, test])
    slices = feature_slices(len(table.columns), len(rows), share, generator(seed, "feature-slices"))
    clients = []
    for id, mine, chosen in zip(ids, rows, slices, strict=True):
        columns = [table.columns[place] for place in chosen.tolist()]
        preparation = Preparation.fit(columns, mine)
        inputs = preparation.apply(mine)
        if inputs.shape[1] == 0:
            names = ", ".join(column.name for column in columns)
            raise InputError(
                f"{id}: all values of {names} are missing in training: raise share, or give it more rows."
            )
        tested = (preparation.apply(test), table.labels[test])
        clients.append(Client(id, (inputs, table.labels[mine]), tested))
    return clients


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1, not {share}.")


def _check_rows(count: int, ids: Sequence[str], rows: Sequence[Tensor]) -> None:
    """Refuse rows that are none, not in the table, or held twice."""
    if len(ids) < 2:
        raise InputError("rows are empty: give the row positions of at least one client.")
    taken = torch.zeros(count, dtype=torch.int64)
    for id, mine in zip(ids, rows, strict=True):
        if mine.dim() != 1 or mine.dtype != torch.int64:
            raise InputError(f"{id}: its rows should be a vector of row positions (int64).")
        if len(mine) == 0:
            raise InputError(f"{id} has no rows: give it some or take fewer clients.")
        if int(mine.min()) < 0 or int(mine.max()) >= count:
            raise InputError(
                f"{id} has rows that are not in the table: they should be from 0 to {count - 1}."
            )
        taken += torch.bincount(mine, minlength=count)
        if int(taken.max()) > 1:
            raise InputError(
                f"{id} has row {int(taken.argmax())}, which is held already: give each row once."
            )
