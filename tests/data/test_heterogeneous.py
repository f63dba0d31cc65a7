"""Clients with different inputs: which rows each has, and runs of specs on them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard.data.dataset import Dataset
from steelyard.data.heterogeneous import Domains, HeterogeneousDataset
from steelyard.data.tables import Column, Table
from steelyard.data.tabular import SlicedTable
from steelyard.errors import InputError
from steelyard.nn.zoo import assorted
from steelyard.specs.building import build
from steelyard.specs.schema import load_spec


def dataset(name: str, *shape: int) -> Dataset:
    draw = torch.Generator().manual_seed(len(name))
    parts = [
        sy.examples(torch.randn(count, *shape, generator=draw), torch.arange(count) % 3) for count in (60, 30)
    ]
    return Dataset(name, *parts, tuple("abc"))  # type: ignore[arg-type]


def domains(size: int = 60, test: int = 30) -> HeterogeneousDataset:
    parts = (dataset("grey", 1, 8, 8), dataset("colour", 3, 10, 10))
    return Domains("domains", tuple("abc"), parts, size, test)


def table() -> HeterogeneousDataset:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % 2
    columns = tuple(
        Column(f"c{place}", labels.double() + torch.randn(80, generator=draw, dtype=torch.float64))
        for place in range(6)
    )
    return SlicedTable("table", ("no", "yes"), Table("table", columns, labels, ("no", "yes")), 0.5, 0.25)


@pytest.fixture(autouse=True)
def factories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toy_sets", SimpleNamespace(domains=domains, table=table))


def spec(**changes: Any) -> Any:
    base = {
        "rounds": 2,
        "data.clients": 4,
        "data.partition": "iid",
        "model": "random-mlp",
        "engine": "serial",
    }
    return load_spec("solo", base | changes)


def test_clients_take_turns_in_the_domains_and_are_tested_on_all_classes_of_theirs() -> None:
    clients = build(spec(**{"data.dataset": "toy_sets:domains", "data.clients": 5})).clients
    shapes = [client.train.input_shape for client in clients.values()]
    assert shapes == [(1, 8, 8), (3, 10, 10), (1, 8, 8), (3, 10, 10), (1, 8, 8)]
    assert [len(client.train) for client in clients.values()] == [20, 30, 20, 30, 20]
    assert all(client.test is not None and len(client.test) == 30 for client in clients.values())
    rows = [set(clients[f"client-{number}"].train.rows.tolist()) for number in (0, 2, 4)]
    assert sorted(row for part in rows for row in part) == list(range(60))


def test_a_domain_without_a_client_is_refused() -> None:
    with pytest.raises(InputError, match="2 domains"):
        build(spec(**{"data.dataset": "toy_sets:domains", "data.clients": 1}))


@pytest.mark.parametrize("name", ["toy_sets:domains", "toy_sets:table"])
def test_a_spec_on_heterogeneous_data_runs_and_is_repeated_in_every_bit(name: str) -> None:
    first, second = (sy.run(spec(**{"data.dataset": name}), out=None) for _ in range(2))
    assert first.history == second.history
    assert "accuracy" not in first.history[-1]
    assert 0 < first.history[-1]["client_accuracy"] <= 1  # type: ignore[operator]
    sizes = {
        sum(value.numel() for value in first.model_of(f"client-{each}").parameters()) for each in range(4)
    }
    assert len(sizes) > 1, "every client has another network"


def test_the_models_of_a_run_on_heterogeneous_data_are_loaded(tmp_path: Path) -> None:
    whole = sy.run(spec(**{"data.dataset": "toy_sets:table", "rounds": 3}), out=tmp_path / "whole")
    assert whole.path is not None
    client = sy.load_model(whole.path, "client-1")
    wanted = whole.model_of("client-1")
    for mine, theirs in zip(client.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    head = sy.load_model(whole.path)
    assert isinstance(head, nn.Linear)
    assert torch.equal(head.weight, whole.model.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data.holdout": 0.2}, "data.holdout cannot be set for table"),
        ({"data.shift": "rotation"}, "data.shift cannot be set for table"),
        ({"adversaries": {"count": 1, "extra": True}}, "adversaries.extra cannot be set for table"),
        ({"sharing": "whole-model"}, "brings a model of its own"),
    ],
)
def test_what_makes_no_sense_for_them_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build(spec(**{"data.dataset": "toy_sets:table", **changes}))


def test_assorted_models_go_round_and_begin_each_turn_with_the_next() -> None:
    models = [assorted((3, 32, 32), 10, client, of=("vgg", "mlp", "linear")) for client in range(9)]
    sizes = [len(list(model.modules())) for model in models]
    vgg, mlp, linear = sizes[:3]
    assert len({vgg, mlp, linear}) == 3
    assert sizes[3:] == [mlp, linear, vgg, linear, vgg, mlp], "each domain of three meets each model once"


def test_the_small_digits_as_a_table() -> None:
    clients = build(spec(**{"data.dataset": "digit-pixels", "data.clients": 3, "model": "mlp"})).clients
    assert [client.train.input_shape for client in clients.values()] == [(32,)] * 3
    assert sum(len(client.train) for client in clients.values()) == 1348
    tests = [client.test for client in clients.values() if client.test is not None]
    assert [len(test) for test in tests] == [449] * 3
    assert torch.bincount(tests[0].labels).min() >= 43, "of all classes"
