"""A population makes its clients when they are needed, and costs nothing for the others."""

import os
import pickle
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.attacks import LabelFlip
from steelyard.data.clients import Client, Population, as_clients
from steelyard.data.dealing import deal
from steelyard.data.digits import digits
from steelyard.engines import Engine, Pool, Serial
from steelyard.errors import InputError

DIGITS = digits()


class Maker:
    """Counts what it makes."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, id: str) -> tuple[Tensor, Tensor]:
        self.made.append(id)
        return torch.full((2, 3), float(int(id[1:]))), torch.tensor([0, 1])


def test_a_population_makes_clients_when_they_are_needed_and_remembers_the_last_few() -> None:
    make = Maker()
    people = Population(["p2", "p0", "p1"], make, sizes=[22, 20, 21], keep=2)
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


def test_the_client_that_was_used_last_stays_longest() -> None:
    make = Maker()
    people = Population(["p0", "p1", "p2"], make, keep=2)
    for id in ("p0", "p1", "p0", "p2", "p0"):
        people[id]
    assert make.made == ["p0", "p1", "p2"]


ALIVE: "weakref.WeakSet[Client]" = weakref.WeakSet()


class Noting:
    """Notes how many clients are alive in its process, in a file for each process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, id: str) -> Client:
        client = Client(id, (torch.zeros(4, 3), torch.arange(4) % 2))
        ALIVE.add(client)
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(f"{len(ALIVE)}\n")
        return client


@pytest.mark.parametrize("poison", [False, True])
@pytest.mark.parametrize("engine", [Serial(), Pool(2)])
def test_all_processes_together_keep_no_more_clients_than_they_should(
    engine: Engine, poison: bool, tmp_path: Path
) -> None:
    ALIVE.clear()
    people = Population([f"p{number:02d}" for number in range(60)], Noting(tmp_path), [4] * 60, keep=12)
    adversaries = {"p00": LabelFlip()} if poison else {}
    sy.Federation(people, nn.Linear(3, 2), rounds=3, engine=engine, adversaries=adversaries).run()
    last = [int(path.read_text().split()[-1]) for path in tmp_path.iterdir()]
    assert len(last) == (1 if isinstance(engine, Serial) else 3)
    assert sum(last) <= 12 + 3 * len(last), "one is being made, and the caller may hold two"


def test_a_population_keeps_at_least_one_client() -> None:
    with pytest.raises(InputError, match="keep must be at least 1"):
        Population(["a"], Maker(), keep=0)
