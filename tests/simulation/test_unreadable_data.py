"""A client whose data cannot be read fails by name, whichever data, engine or moment; the run goes on."""

from typing import Any

import pytest
import torch
from small_federation import CLIENTS, TEST, Table, blobs, linear, weights
from torch import Tensor, nn

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.engines import Auto, Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.objectives import CrossEntropy
from steelyard.server.result import Result

ENGINES: list[Engine] = [Serial(), Pool(2), Vectorized(1), Auto()]


def fail() -> Any:
    raise OSError("disk gone")


def run(clients: Any, engine: Engine, **settings: Any) -> Result:
    return sy.Federation(clients, linear(), engine=engine, rounds=2, test=TEST, **settings).run()


def others() -> list[Client]:
    return [Client(name, data) for name, data in CLIENTS.items()]


def said(result: Result, client: str) -> str:
    return " ".join(
        f"{row['status']} {row.get('evaluation')}" for row in result.clients if row["client"] == client
    )


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
@pytest.mark.parametrize(
    "parts",
    [
        {"test": fail},
        {"test": Table(blobs(8, 3), broken=True)},
        {"held_out": Table(blobs(8, 3), broken=True)},
        {"train": Table(blobs(8, 3), broken=True)},
    ],
    ids=["test function", "test", "held out", "train"],
)
@pytest.mark.parametrize("place", ["aaa", "zzz"])
def test_data_that_cannot_be_read_is_the_failure_of_their_client(
    parts: dict[str, Any], engine: Engine, place: str
) -> None:
    broken = Client(place, **{"train": blobs(8, 5), **parts})
    result = run([*others(), broken], engine)
    assert "OSError: disk" in said(result, place)
    assert all("failed" not in said(result, name) for name in CLIENTS)


class Unreadable(Table):
    """The first rows too cannot be read once the client exists."""

    def __init__(self) -> None:
        super().__init__(blobs(8, 3))
        self.reads = 0

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.reads += 1
        if self.reads > 2:  # as often as `Client` looks at it
            raise OSError("disk gone")
        return super().__getitem__(row)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
@pytest.mark.parametrize("balance", [0.0, 1.0], ids=["", "labels are counted"])
def test_profiles_leave_out_clients_that_cannot_be_read(engine: Engine, balance: float) -> None:
    if balance and isinstance(engine, Vectorized):
        pytest.skip("it has no loss for each example")
    algorithm = sy.Algorithm(objective=CrossEntropy(balance=balance))
    result = run([*others(), Client("aaa", Unreadable())], engine, algorithm=algorithm)
    assert "OSError: disk gone" in said(result, "aaa")
    assert all("failed" not in said(result, name) for name in CLIENTS)


def test_a_data_set_whose_first_item_cannot_be_read_is_refused_by_name() -> None:
    class Broken(Table):
        def __getitem__(self, row: int) -> tuple[Tensor, int]:
            raise OSError("disk gone")

    with pytest.raises(InputError, match="client 'rome', train: the first item cannot be read: OSError"):
        sy.Federation({**CLIENTS, "rome": Broken(blobs(8, 3))}, linear())


def test_when_no_client_can_be_read_the_first_is_named() -> None:
    with pytest.raises(InputError, match="client 'a': its training data cannot be read: OSError: disk gone"):
        sy.Federation([Client(name, Unreadable()) for name in "ab"], linear())


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
def test_a_population_whose_first_client_cannot_be_created_runs(engine: Engine) -> None:
    def make(name: str) -> Any:
        return fail() if name == "aaa" else CLIENTS[name]

    result = run(sy.Population(["aaa", *CLIENTS], make), engine)
    assert "OSError: disk gone" in said(result, "aaa")
    assert all("failed" not in said(result, name) for name in CLIENTS)
    if isinstance(engine, Serial):
        assert weights(result) == weights(run(sy.Population(CLIENTS, make), engine))
    with pytest.raises(InputError, match="client 'a' cannot be created: OSError: disk gone"):
        sy.Federation(sy.Population("ab", lambda name: fail()), nn.Linear(2, 3))


def test_data_of_the_wrong_form_are_still_refused() -> None:
    odd = Client("odd", blobs(8, 1), lambda: (torch.zeros(3, 2), torch.zeros(2)))
    with pytest.raises(InputError, match="'odd', test: 3 inputs but 2 targets"):
        sy.Federation([*others(), odd], linear())
