"""Clients with their own rows and columns of a table."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from toy_tables import NAN, codes, data, toy

from steelyard.data.clients import Client
from steelyard.data.partitions import dirichlet, iid
from steelyard.data.preparation import Preparation
from steelyard.data.tables import Table
from steelyard.data.tabular import SlicedTable, deal_table, feature_slices, stratified_split
from steelyard.errors import InputError
from steelyard.seeds import generator


def same(one: list[Client], other: list[Client]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        torch.equal(a, b) for mine, yours in pairs for a, b in zip(data(mine), data(yours), strict=True)
    )


# Slices of the columns


@pytest.mark.parametrize(
    ("count", "share", "size"), [(10, 0.5, 5), (9, 0.5, 5), (100, 0.07, 7), (10, 0.05, 2), (2, 1.0, 2)]
)
def test_every_client_gets_its_share_of_the_columns(count: int, share: float, size: int) -> None:
    for mine in feature_slices(count, 6, share, generator(0)):
        assert len(mine) == size
        assert mine.tolist() == sorted(set(mine.tolist()))
        assert 0 <= int(mine.min()) <= int(mine.max()) < count


@pytest.mark.parametrize(
    ("count", "clients", "share"), [(14, 2, 0.5), (49, 4, 0.25), (9, 3, 1 / 3), (10, 5, 0.2), (10, 3, 0.5)]
)
def test_every_column_belongs_to_a_client(count: int, clients: int, share: float) -> None:
    for seed in range(20):
        found = feature_slices(count, clients, share, generator(seed))
        assert set(torch.cat(found).tolist()) == set(range(count))
        assert {len(mine) for mine in found} == {len(found[0])}


def test_slices_differ_and_overlap() -> None:
    found = [set(mine.tolist()) for mine in feature_slices(14, 5, 0.5, generator(3))]
    assert len({tuple(sorted(mine)) for mine in found}) == 5
    assert all(mine & other for mine in found for other in found)


def test_columns_for_which_there_is_no_room_are_left_out() -> None:
    found = feature_slices(20, 3, 0.2, generator(0))
    assert len(set(torch.cat(found).tolist())) == 12, "nothing is held twice while something is not held"


def test_every_column_is_equally_likely() -> None:
    draw = generator(0)
    counts = torch.cat([torch.cat(feature_slices(6, 2, 0.5, draw)) for _ in range(400)]).bincount()
    assert counts.tolist() == [400] * 6, "two halves"
    counts = torch.cat([torch.cat(feature_slices(6, 3, 0.5, draw)) for _ in range(400)]).bincount()
    assert (counts - 600).abs().max() < 70


@pytest.mark.parametrize(
    ("count", "clients", "share", "message"),
    [
        (1, 3, 0.5, "at least 2 columns and 1 client, not 1 and 3"),
        (5, 0, 0.5, "at least 2 columns and 1 client, not 5 and 0"),
        (5, 3, 0.0, "share must be above 0 and at most 1, not 0.0"),
        (5, 3, 1.1, "share must be above 0 and at most 1, not 1.1"),
        (5, 3, NAN, "share must be above 0 and at most 1, not nan"),
    ],
)
def test_slices_that_make_no_sense(count: int, clients: int, share: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        feature_slices(count, clients, share, generator(0))


# Rows to train on and to test on


@pytest.mark.parametrize(
    ("counts", "share", "tested"),
    [
        ([40, 20], 0.25, [10, 5]),
        ([30, 10], 0.1, [3, 1]),
        ([4], 0.25, [1]),
        ([3, 1], 0.25, [1, 0]),
        ([3, 1], 0.99, [2, 0]),
        ([2, 2], 0.9, [1, 1]),
        ([50, 1, 1], 0.5, [26, 0, 0]),
        ([8, 8], 0.01, None),
    ],
)
def test_a_split_keeps_the_mix_of_the_classes(
    counts: list[int], share: float, tested: list[int] | None
) -> None:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    for seed in range(10):
        train, test = stratified_split(labels, share, generator(seed))
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(labels)))
        assert set(labels[train].tolist()) == set(range(len(counts)))
        if tested is None:
            assert len(test) == 1
        else:
            assert labels[test].bincount(minlength=len(counts)).tolist() == tested


def test_different_seeds_test_different_rows() -> None:
    labels = torch.arange(40) % 2
    found = {tuple(stratified_split(labels, 0.25, generator(seed))[1].tolist()) for seed in range(10)}
    assert len(found) == 10


# Clients


def split_by(partition: Any, **options: Any) -> Any:
    return lambda labels, clients, part: partition(labels, clients, generator(0, part), **options)


@pytest.mark.parametrize(("partition", "options"), [(iid, {}), (dirichlet, {"min_size": 4})])
def test_clients_of_a_table_share_a_test_and_nothing_else(partition: Any, options: dict[str, int]) -> None:
    table = toy(200)
    dealt = SlicedTable("toy", table.class_names, table, 0.5, 0.25).deal(
        split_by(partition, **options), 12, 5
    )
    assert [client.id for client in dealt] == [f"client-{number:02d}" for number in range(12)]
    assert sum(len(client.train) for client in dealt) == 150
    mixes = []
    for client in dealt:
        train, train_labels, test, test_labels = data(client)
        assert train.shape[1] == test.shape[1] >= 3
        assert train.dtype == test.dtype == torch.float32
        assert bool(train.isfinite().all())
        assert bool(test.isfinite().all())
        mixes.append(train_labels.bincount(minlength=2))
        assert torch.equal(test_labels, data(dealt[0])[3])
    everyone = torch.stack(mixes).sum(0) + data(dealt[0])[3].bincount(minlength=2)
    assert torch.equal(everyone, table.labels.bincount(minlength=2))


def test_the_test_has_the_mix_of_the_whole_table_whatever_clients_hold() -> None:
    table = toy(200)
    dealt = SlicedTable("toy", table.class_names, table, 0.5, 0.25).deal(split_by(dirichlet, alpha=0.1), 4, 0)
    wanted = table.labels.bincount(minlength=2) / 4
    for client in dealt:
        found = data(client)[3].bincount(minlength=2)
        assert (found - wanted).abs().max() <= 1, "also of classes that the client does not hold"
    held = torch.stack([data(client)[1].bincount(minlength=2) for client in dealt])
    assert (held / held.sum(dim=1, keepdim=True))[:, 0].std() > 0.2


def test_the_inputs_are_those_of_the_clients_rows_and_columns() -> None:
    table = toy(40)
    rows, test = [torch.arange(16), torch.arange(16, 32)], torch.arange(32, 40)
    clients = deal_table(table, rows, test, seed=2)
    slices = feature_slices(6, 2, 0.5, generator(2, "feature-slices"))
    for number, client in enumerate(clients):
        columns = [table.columns[place] for place in slices[number].tolist()]
        ready = Preparation.fit(columns, rows[number])
        wanted = [ready.apply(rows[number]), table.labels[rows[number]], ready.apply(test)]
        for one, other in zip(data(client), [*wanted, table.labels[test]], strict=True):
            assert torch.equal(one, other)


def test_the_seed_decides_and_nothing_else() -> None:
    table = toy()
    sliced = SlicedTable("toy", table.class_names, table, 1.0, 0.25)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = sliced.deal(split_by(iid), 3, 7)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is left alone"
    torch.manual_seed(2)
    assert same(first, sliced.deal(split_by(iid), 3, 7))
    assert not same(first, sliced.deal(split_by(iid), 3, 8)), "other rows are tested on"


def test_inputs_do_not_depend_on_rows_of_other_clients() -> None:
    table = toy()
    rows, test = [torch.arange(25), torch.arange(25, 50)], torch.arange(50, 60)
    changed = [replace(column, values=column.values.clone()) for column in table.columns]
    for column in changed:
        column.values[25:50] = 0
    first, _ = deal_table(table, rows, test, seed=0)
    again, _ = deal_table(replace(table, columns=tuple(changed)), rows, test, seed=0)
    assert same([first], [again])


@pytest.mark.parametrize(
    ("rows", "share", "message"),
    [
        ([range(4), range(0)], 0.5, "client-1 has no rows"),
        ([range(4), range(3, 8)], 0.5, "client-1 has row 3, which is already in use"),
        ([[1, 2, 3, 3]], 0.5, "client-0 has row 3, which is already in use"),
        ([range(48, 52)], 0.5, "the test has row 50, which is already in use"),
        ([range(57, 61)], 0.5, "client-0 has rows that are not in the table: they should be from 0 to 59"),
        ([range(-1, 4)], 0.5, "client-0 has rows that are not in the table"),
        ([[0.0, 1.0, 2.0, 3.0]], 0.5, "client-0: its rows should be a vector of row positions"),
        ([], 0.5, "at least one client"),
        ([range(4)], 0.0, "share must be above 0 and at most 1, not 0.0"),
        ([range(4)], 1.5, "share must be above 0 and at most 1, not 1.5"),
    ],
)
def test_input_that_cannot_be_dealt(rows: list[Any], share: float, message: str) -> None:
    given = [torch.tensor(list(mine), dtype=torch.int64 if len(mine) == 0 else None) for mine in rows]
    with pytest.raises(InputError, match=message):
        deal_table(toy(), given, torch.arange(50, 55), 0, share)


@pytest.mark.parametrize("test", [0.0, 1.0, NAN])
def test_a_test_that_cannot_be_held_out(test: float) -> None:
    with pytest.raises(InputError, match="test must be between 0 and 1, and neither of them"):
        SlicedTable("toy", ("a", "b"), toy(), 0.5, test).deal(split_by(iid), 3, 0)


def test_a_client_whose_columns_are_all_gaps_is_named() -> None:
    columns = (codes(-1, -1, -1, -1, 0, 0), codes(-1, -1, -1, -1, 0, 0, name="tint"))
    table = Table("toy", columns, torch.tensor([0, 0, 1, 1, 0, 1]), ("a", "b"))
    with pytest.raises(InputError, match=r"^client-0: all values of hue, tint are missing in training"):
        deal_table(table, [torch.arange(4)], torch.arange(4, 6), 0)
