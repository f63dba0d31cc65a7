"""Partitions: whatever the labels and the settings, every client gets its own rows, and the skew is real."""

import gzip
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from steelyard.data import partitions
from steelyard.errors import InputError

Partition = Callable[[Tensor, int, torch.Generator], list[Tensor]]

TEN = torch.arange(1000) % 10  # 100 rows of each of ten classes


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def class_counts(labels: Tensor, parts: list[Tensor]) -> Tensor:
    return torch.stack([labels[part].bincount(minlength=int(labels.max()) + 1) for part in parts])


def check(parts: list[Tensor], clients: int, rows: int, *, all_rows: bool) -> None:
    assert len(parts) == clients
    assert all(part.dtype == torch.int64 and len(part) > 0 for part in parts)
    assert all(bool((part.diff() > 0).all()) for part in parts), "sorted, no row twice"
    dealt = torch.cat(parts).sort().values
    assert bool((dealt.diff() > 0).all()), "disjoint"
    assert dealt[0] >= 0
    assert dealt[-1] < rows
    if all_rows:
        assert len(dealt) == rows


@st.composite
def labels_and_clients(draw: st.DrawFn) -> tuple[Tensor, int]:
    values = draw(st.lists(st.integers(0, 12), min_size=1, max_size=120))
    return torch.tensor(values), draw(st.integers(1, len(values)))


alphas = st.floats(1e-6, 1e4)


@given(case=labels_and_clients(), alpha=alphas, seed=st.integers(0, 2**60), data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_partition_deals_disjoint_sorted_rows_to_every_client(
    case: tuple[Tensor, int], alpha: float, seed: int, data: st.DataObject
) -> None:
    labels, clients = case
    min_size = data.draw(st.integers(1, len(labels) // clients))
    per_client = data.draw(st.integers(1, len(set(labels.tolist()))))
    dealers: list[Partition] = [
        partitions.iid,
        partial(partitions.dirichlet, alpha=alpha, min_size=min_size),
        partial(partitions.quantity, alpha=alpha, min_size=min_size),
        partial(partitions.classes, per_client=per_client),
    ]
    for deal in dealers:
        parts = deal(labels, clients, seeded(seed))
        all_classes_held = clients * per_client >= len(set(labels.tolist()))
        check(parts, clients, len(labels), all_rows=deal is not dealers[-1] or all_classes_held)
        again = deal(labels, clients, seeded(seed))
        assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
        if deal in dealers[1:3]:
            assert min(map(len, parts)) >= min_size


@given(case=labels_and_clients(), seed=st.integers(0, 2**60), data=st.data())
@settings(max_examples=60, deadline=None)
def test_shards_are_equal_and_pure(case: tuple[Tensor, int], seed: int, data: st.DataObject) -> None:
    labels, clients = case
    per_client = data.draw(st.integers(1, len(labels) // clients))
    shards = data.draw(st.integers(clients * per_client, len(labels)))
    parts = partitions.shards(labels, clients, seeded(seed), shards=shards, per_client=per_client)
    check(parts, clients, len(labels), all_rows=shards == clients * per_client)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= per_client
    again = partitions.shards(labels, clients, seeded(seed), shards=shards, per_client=per_client)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("name", ["iid", "shards", "dirichlet", "classes", "quantity"])
def test_another_seed_gives_another_split(name: str) -> None:
    deal: Partition = getattr(partitions, name)
    first, second = deal(TEN, 10, seeded(1)), deal(TEN, 10, seeded(2))
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_iid_sizes_differ_by_one_at_most_and_labels_are_mixed() -> None:
    parts = partitions.iid(TEN[:998], 10, seeded())
    assert sorted(map(len, parts)) == [99, 99] + [100] * 8
    counts = class_counts(TEN, partitions.iid(TEN, 10, seeded()))
    assert counts.min() >= 1
    assert counts.max() <= 25


def test_shards_give_few_classes_in_equal_parts_and_leave_the_rest() -> None:
    parts = partitions.shards(TEN, 20, seeded(), shards=50, per_client=2)
    assert {len(part) for part in parts} == {40}
    seen = (class_counts(TEN, parts) > 0).sum(dim=1)
    assert seen.max() == 2  # a shard of 20 rows lies inside one class of 100
    assert sum(map(len, parts)) == 800


def test_shards_keep_the_order_of_rows_inside_a_class() -> None:
    parts = partitions.shards(torch.tensor([1, 0, 1, 0]), 4, seeded(), shards=4, per_client=1)
    assert sorted(int(part) for part in parts) == [0, 1, 2, 3]
    halves = partitions.shards(TEN, 20, seeded(), shards=20, per_client=1)
    for part in halves:  # the first or the second fifty rows of one class
        assert torch.equal(part.diff(), torch.full((49,), 10))


def test_dirichlet_survives_a_tiny_alpha() -> None:
    parts = partitions.dirichlet(TEN, 100, seeded(), alpha=1e-3)
    check(parts, 100, 1000, all_rows=True)
    assert max(map(len, parts)) < 100, "the largest clients gave rows to the empty ones"
    parts = partitions.dirichlet(TEN, 100, seeded(), alpha=1e-3, min_size=10)
    assert {len(part) for part in parts} == {10}


def test_a_tiny_alpha_gives_each_class_to_one_client_and_not_always_the_same() -> None:
    counts = class_counts(TEN, partitions.dirichlet(TEN, 5, seeded(), alpha=1e-4))
    assert (counts.max(dim=0).values >= 95).all()
    owners = {
        int(class_counts(TEN, partitions.dirichlet(TEN, 5, seeded(i), alpha=1e-4))[:, 0].argmax())
        for i in range(40)
    }
    assert owners == set(range(5))


def test_label_skew_grows_as_alpha_falls() -> None:
    def distance(alpha: float) -> float:
        """Mean total variation between a client's label mix and the mix of all."""
        counts = class_counts(TEN, partitions.dirichlet(TEN, 10, seeded(3), alpha=alpha)).double()
        return float((counts / counts.sum(dim=1, keepdim=True) - 0.1).abs().sum(dim=1).mean() / 2)

    skews = [distance(alpha) for alpha in (1000.0, 10.0, 1.0, 0.3, 0.05)]
    assert skews == sorted(skews)
    assert skews[0] < 0.05
    assert skews[-1] > 0.6


def test_dirichlet_proportions_have_the_right_moments() -> None:
    for alpha in (0.05, 0.5, 5.0):
        drawn = partitions._proportions(20_000, 4, alpha, seeded())
        torch.testing.assert_close(drawn.sum(dim=1), torch.ones(20_000, dtype=torch.float64))
        assert abs(float(drawn[:, 0].mean()) - 0.25) < 0.01
        expected = 0.25 * 0.75 / (4 * alpha + 1)  # the variance of one share of Dir(alpha)
        assert abs(float(drawn[:, 0].var()) / expected - 1) < 0.05


def test_topping_up_takes_only_from_the_largest() -> None:
    levelled = partitions._levelled(torch.tensor([0, 5, 50, 47, 2]), 4)
    assert levelled.tolist() == [4, 5, 45, 46, 4] or levelled.tolist() == [4, 5, 46, 45, 4]
    untouched = torch.tensor([3, 9, 4])
    assert torch.equal(partitions._levelled(untouched, 3), untouched)


def test_topping_up_moves_a_mix_of_the_donors_classes() -> None:
    donor = torch.arange(100)  # grouped by class: 0 to 49 are of one, the others of another
    kept, moved = partitions._top_up([donor, donor[:0]], 30, seeded())
    assert sorted([*kept.tolist(), *moved.tolist()]) == list(range(100))
    assert 8 <= int((moved < 50).sum()) <= 22


@pytest.mark.parametrize(("clients", "per_client"), [(10, 2), (7, 3), (100, 1), (3, 10), (30, 2)])
def test_classes_gives_each_client_exactly_k_and_splits_a_class_evenly(clients: int, per_client: int) -> None:
    counts = class_counts(TEN, partitions.classes(TEN, clients, seeded(), per_client=per_client))
    assert ((counts > 0).sum(dim=1) == per_client).all()
    assert counts.sum() == 1000
    holders = (counts > 0).sum(dim=0)
    assert holders.max() - holders.min() <= 1
    for column in counts.T:
        held = column[column > 0]
        assert held.max() - held.min() <= 1


def test_classes_without_a_client_are_not_used() -> None:
    counts = class_counts(TEN, partitions.classes(TEN, 3, seeded(), per_client=2))
    assert (counts.sum(dim=0) > 0).sum() == 6
    assert counts.sum() == 600


def test_rare_classes_go_only_to_as_many_clients_as_they_have_rows() -> None:
    labels = torch.cat([torch.zeros(500), torch.ones(500), torch.full((3,), 2)]).long()
    counts = class_counts(labels, partitions.classes(labels, 50, seeded(), per_client=2))
    assert ((counts > 0).sum(dim=1) == 2).all()
    assert (counts[:, 2] > 0).sum() == 3


def test_quantity_has_unequal_sizes_but_one_label_mix() -> None:
    labels = torch.arange(60_000) % 10
    parts = partitions.quantity(labels, 10, seeded(), alpha=0.5)
    sizes = torch.tensor([len(part) for part in parts])
    assert sizes.max() > 5 * sizes.min()
    counts = class_counts(labels, [part for part in parts if len(part) > 2000]).double()
    shares = counts / counts.sum(dim=1, keepdim=True)
    assert (shares - 0.1).abs().max() < 0.03
    near = [len(part) for part in partitions.quantity(labels, 10, seeded(), alpha=1e5)]
    assert max(near) < 1.05 * min(near)


def test_natural_takes_the_largest_groups_first() -> None:
    groups = torch.tensor([7, 3, 3, 9, 9, 9, 7, 3, 9, 1])
    parts = partitions.natural(groups, 3, seeded())
    assert [part.tolist() for part in parts] == [[3, 4, 5, 8], [1, 2, 7], [0, 6]]


@pytest.mark.parametrize(
    ("deal", "message"),
    [
        (lambda g: partitions.iid(TEN, 0, g), "clients must be at least 1, not 0"),
        (lambda g: partitions.iid(TEN, 1001, g), "1001 rows, but there are 1000"),
        (lambda g: partitions.shards(TEN, 20, g, shards=39), "need 40 shards, but there are 39"),
        (lambda g: partitions.shards(TEN, 2, g, shards=1001), "1000 rows cannot be cut into 1001"),
        (lambda g: partitions.shards(TEN, 2, g, per_client=0), "per_client must be at least 1, not 0"),
        (lambda g: partitions.dirichlet(TEN, 2, g, alpha=0.0), "alpha must be .* not 0.0"),
        (lambda g: partitions.dirichlet(TEN, 2, g, alpha=float("nan")), "alpha must be .* not nan"),
        (lambda g: partitions.dirichlet(TEN, 2, g, alpha=float("inf")), "alpha must be .* not inf"),
        (lambda g: partitions.dirichlet(TEN, 101, g, min_size=10), "need 1010 rows, but there are 1000"),
        (lambda g: partitions.dirichlet(TEN, 2, g, min_size=0), "min_size must be at least 1"),
        (lambda g: partitions.dirichlet(TEN.double(), 2, g), "whole-number label"),
        (lambda g: partitions.classes(TEN, 2, g, per_client=11), "per_client is 11, but there are 10"),
        (lambda g: partitions.classes(TEN, 2, g, per_client=0), "per_client must be at least 1"),
        (lambda g: partitions.classes(TEN, 1001, g), "1001 rows, but there are 1000"),
        (lambda g: partitions.quantity(TEN, 2, g, alpha=-1.0), "alpha must be .* not -1.0"),
        (lambda g: partitions.quantity(TEN, 300, g, min_size=4), "need 1200 rows, but there are 1000"),
        (lambda g: partitions.natural(None, 2, g), "has no groups"),
        (lambda g: partitions.natural(TEN, 11, g), "11 clients need as many groups, but there are 10"),
    ],
)
def test_impossible_requests_are_refused_with_the_numbers(
    deal: Callable[[torch.Generator], list[Tensor]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        deal(seeded())


@pytest.mark.skipif(not os.environ.get("STEELYARD_DATA"), reason="needs STEELYARD_DATA with mnist/")
def test_mnist_in_300_shards_gives_twenty_clients_400_rows_each() -> None:
    packed = (Path(os.environ["STEELYARD_DATA"]) / "mnist" / "train-labels-idx1-ubyte.gz").read_bytes()
    labels = torch.frombuffer(bytearray(gzip.decompress(packed)[8:]), dtype=torch.uint8).long()
    parts = partitions.shards(labels, 20, seeded())
    check(parts, 20, 60_000, all_rows=False)
    assert {len(part) for part in parts} == {400}
    assert (class_counts(labels, parts) > 0).sum(dim=1).max() <= 4
