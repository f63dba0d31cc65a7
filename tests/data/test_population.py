"""A population makes its clients when they are needed, and costs nothing for the others."""

import pickle

import pytest
import torch
from torch import Tensor

from steelyard.data.clients import Population, as_clients, deal
from steelyard.data.digits import digits
from steelyard.errors import InputError

DIGITS = digits()


class Maker:
    """Counts what it makes."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, id: str) -> tuple[Tensor, Tensor]:
        self.made.append(id)
        return torch.full((2, 3), float(int(id[1:]))), torch.tensor([0, 1])


def test_a_population_makes_clients_when_they_are_needed_and_remembers_the_last_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Population, "RECENT", 2)
    make = Maker()
    people = Population(["p2", "p0", "p1"], make, sizes=[22, 20, 21])
    assert list(people) == ["p0", "p1", "p2"]
    assert [people.size(each) for each in people] == [20, 21, 22]
    assert "p1" in people
    assert "p9" not in people
    assert len(people) == 3
    assert make.made == []
    assert people["p1"].train.batch(torch.arange(1))[0].tolist() == [[1, 1, 1]]
    assert people["p1"] is people["p1"]
    assert people["p2"].id == "p2"
    assert people["p0"].id == "p0"
    assert people["p1"].id == "p1"
    assert make.made == ["p1", "p2", "p0", "p1"]
    assert as_clients(people) is people


def test_a_population_without_sizes_knows_none() -> None:
    assert Population(["a"], Maker()).size("a") == 0


def test_mistakes_in_a_population() -> None:
    with pytest.raises(KeyError, match="nobody"):
        Population(["p1"], Maker())["nobody"]
    with pytest.raises(InputError, match="two clients are called 'a'"):
        Population(["a", "b", "a"], Maker())
    with pytest.raises(InputError, match="at least one client"):
        Population([], Maker())
    with pytest.raises(InputError, match="1 sizes for 2 clients"):
        Population(["a", "b"], Maker(), sizes=[1])
    with pytest.raises(InputError, match="'a' has no examples"):
        Population(["a"], lambda id: (torch.zeros(0, 2), torch.zeros(0)))["a"]


def test_a_population_can_be_sent_to_another_process() -> None:
    people = deal(DIGITS, list(torch.arange(len(DIGITS.train)).chunk(4)), 0)
    mine = people["client-2"]
    theirs = pickle.loads(pickle.dumps(people))["client-2"]
    assert torch.equal(theirs.train.rows, mine.train.rows)
    assert torch.equal(theirs.test.rows, mine.test.rows)  # type: ignore[union-attr]
