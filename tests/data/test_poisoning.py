"""Poisoned labels: in arrays and frames of any structure, and refused where there are no class numbers."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from steelyard.attacks import LabelFlip
from steelyard.data.clients import as_clients
from steelyard.data.poisoning import poisoned
from steelyard.errors import InputError

pd = pytest.importorskip("pandas")

X, Y = torch.randn(6, 2), torch.arange(6) % 3


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((X, Y), id="pair"),
        pytest.param((X, X, Y), id="triple"),
        pytest.param({"a": X, "labels": Y}, id="dict"),
        pytest.param((pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}), "y"), id="frame"),
    ],
)
def test_class_numbers_of_any_structure_are_flipped_for_the_attacker_alone(data: Any) -> None:
    clients = as_clients({"good": data, "bad": data})
    attack = LabelFlip()
    found = poisoned(clients, {"bad": attack}, 3, seed=0)
    expected = attack.poison(Y, 3, torch.Generator())
    assert not torch.equal(expected, Y)
    assert torch.equal(found["bad"].train.labels, expected)
    assert torch.equal(found["good"].train.labels, Y)
    torch.testing.assert_close(found["bad"].train.span(0, 6)[0], clients["bad"].train.span(0, 6)[0])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((X, X[:, 0]), id="numbers"),
        pytest.param((X, X > 0), id="several labels"),
        pytest.param({"a": X}, id="no targets"),
        pytest.param([(X[0], 0)] * 3, id="items"),
        pytest.param(DataLoader(TensorDataset(X, Y)), id="loader"),
    ],
)
def test_labels_that_are_no_class_numbers_cannot_be_flipped(data: Any) -> None:
    with pytest.raises(
        InputError, match=r"attack LabelFlip cannot change the labels of client 'bad'; give it"
    ):
        poisoned(as_clients({"bad": data}), {"bad": LabelFlip()}, 3, seed=0)


def test_tokens_that_are_not_scored_stay_so() -> None:
    tokens = torch.tensor([[0, 2, -100], [1, -100, -100]])
    clients = as_clients({"bad": ({"input_ids": tokens.abs()}, tokens)})
    found = poisoned(clients, {"bad": LabelFlip()}, 3, seed=0)["bad"]
    assert found.train.labels.tolist() == [[2, 0, -100], [1, -100, -100]]
