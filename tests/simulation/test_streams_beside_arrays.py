"""Data that come batch after batch may stand beside arrays, in any place where data are given."""

from typing import Any

import pytest
import torch
from small_federation import TEST, blobs, linear
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import steelyard as sy
from steelyard.errors import InputError

FIRST, SECOND = blobs(24, 0), blobs(30, 1)
ARRAYS = {"oslo": FIRST, "turin": SECOND}


class Items(IterableDataset[Any]):
    """Items of a data set, without a length."""

    def __iter__(self) -> Any:
        return zip(*TEST, strict=True)


def loader(data: Any = TEST) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data), batch_size=7)


def last(clients: Any = ARRAYS, **settings: Any) -> Any:
    result = sy.Federation(clients, linear(), **{"rounds": 2, "engine": "serial", **settings}).run()
    assert [row["used"] for row in result.history] == [len(clients)] * 2
    return result.history[-1]


@pytest.mark.parametrize("engine", ["serial", "pool", "vectorized", "auto"])
@pytest.mark.parametrize("place", ["test", "validation"])
def test_a_loader_scores_models_that_train_on_arrays(place: str, engine: str) -> None:
    found, wanted = (last(**{place: data}, engine=engine) for data in (loader(), TEST))
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("place", ["test", "validation"])
def test_an_iterable_data_set_does_too(place: str) -> None:
    assert last(**{place: Items()}) == pytest.approx(last(**{place: TEST}))


def numbers(data: Any) -> Any:
    return data[0], data[0][:, 0]


@pytest.mark.parametrize("place", ["test", "held_out"])
@pytest.mark.parametrize("change", [tuple, numbers], ids=["classes", "numbers"])
def test_a_client_with_arrays_may_be_scored_on_a_loader(place: str, change: Any) -> None:
    model = torch.nn.Linear(2, 3 if change is tuple else 1)

    def found(data: Any) -> Any:
        clients = [
            sy.Client("oslo", change(FIRST), **{place: data}),
            sy.Client("turin", change(SECOND), **{place: change(TEST)}),
        ]
        validation = 0.2 if place == "held_out" else None
        result = sy.Federation(clients, model, validation=validation, rounds=2, engine="serial").run()
        assert [row["used"] for row in result.history] == [2, 2]
        return {name: value for name, value in result.history[-1].items() if name != "temperature"}

    assert found(loader(change(TEST))) == pytest.approx(found(change(TEST)), abs=1e-6)


def test_clients_with_arrays_and_with_loaders_train_together() -> None:
    clients = {"oslo": FIRST, "turin": loader(SECOND)}
    for test in (TEST, loader()):
        assert last(clients, test=test, engine="pool") == last(clients, test=test)
    assert last(clients, test=loader()) == pytest.approx(last(clients, test=TEST))


def test_a_population_may_have_both() -> None:
    def make(id: str) -> sy.Client:
        data, test = (FIRST, TEST) if id == "oslo" else (loader(SECOND), loader())
        return sy.Client(id, data, test=test)

    population = sy.Population(["oslo", "turin"], make, [24, 30])
    found = last(population, test=loader())
    assert found["client_accuracy"] == pytest.approx(found["accuracy"])


def test_a_temperature_is_of_the_clients_that_fit_one() -> None:
    def clients(held_out: Any) -> list[sy.Client]:
        return [sy.Client("oslo", FIRST, held_out=TEST), sy.Client("turin", SECOND, held_out=held_out)]

    assert last(clients(loader()))["temperature"] == pytest.approx(last(clients(None))["temperature"])


def test_the_vectorized_engine_says_whose_data_come_in_batches() -> None:
    clients = {"oslo": FIRST, "turin": loader(SECOND)}
    with pytest.raises(InputError, match="training data of client 'turin' come in batches of their own"):
        last(clients, engine="vectorized")
