"""Results can be pickled and copied, and runs work in the processes of other programs' pools."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from small_federation import CLIENTS, TEST, Table, linear
from torch import nn

import steelyard as sy
from steelyard.errors import InputError
from steelyard.server.result import Result


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))


class Unpicklable(Table):
    """Data that no pickle may hold."""

    def __reduce__(self) -> Any:
        raise TypeError("the data must stay here")


KEPT: dict[str, Callable[[Path], dict[str, Any]]] = {
    "in memory": lambda path: {},
    "recorded": lambda path: {"recorder": path / "run"},
}
COPIES: dict[str, Callable[[Result], Result]] = {
    "pickle": lambda result: pickle.loads(pickle.dumps(result)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("spill", [False, True])
def test_a_copy_of_a_result_has_everything_but_the_data(
    copied: Callable[[Result], Result], kept: Callable[[Path], dict[str, Any]], spill: bool, tmp_path: Path
) -> None:
    clients = {name: Unpicklable(data) for name, data in CLIENTS.items()}
    algorithm = sy.Algorithm(sharing="head", weighing="majority", training={"steps": 2})
    made = sy.Federation(clients, net(), algorithm, rounds=2, engine="serial", spill=spill)
    result = made.run(lambda round: None, **kept(tmp_path))
    sentence = str(result.verdicts["oslo"])  # computed before it is copied
    again = copied(result)
    assert bits(again.model) == bits(result.model)
    assert (again.history, tuple(again.clients)) == (result.history, tuple(result.clients))
    assert str(again.verdicts["oslo"]) == sentence
    with pytest.raises(InputError, match="unknown client 'olso': did you mean 'oslo'"):
        again.verdicts["olso"]
    assert again.verdicts.get("olso") is None
    assert torch.equal(again.state.server.message.mean, result.state.server.message.mean)
    assert again.path == result.path
    if spill and result.path is None:
        with pytest.raises(InputError, match="was in temporary files"):
            again.model_of("oslo")
    else:
        assert bits(again.model_of("oslo")) == bits(result.model_of("oslo"))
    with pytest.raises(InputError, match=r"unknown client 'osla'|temporary files"):
        again.model_of("osla")


def test_models_of_clients_of_their_own_are_part_of_a_copy() -> None:
    clients = [sy.Client(name, data, model=net()) for name, data in CLIENTS.items()]
    made = sy.Federation(clients, None, sy.Algorithm(sharing="head"), rounds=1, engine="serial")
    result = made.run()
    assert bits(pickle.loads(pickle.dumps(result)).model_of("oslo")) == bits(result.model_of("oslo"))


def test_models_that_a_population_makes_are_not_and_it_says_so() -> None:
    clients = sy.Population(CLIENTS, lambda name: sy.Client(name, CLIENTS[name], model=net()))
    made = sy.Federation(clients, None, sy.Algorithm(sharing="head"), rounds=1, engine="serial")
    result = made.run()
    assert result.model_of("oslo")
    with pytest.raises(InputError, match="this copy of the result does not have the model"):
        pickle.loads(pickle.dumps(result)).model_of("oslo")


def test_a_copy_can_be_trained_on() -> None:
    def made() -> sy.Federation:
        algorithm = sy.Algorithm(sharing="head", training={"steps": 2})
        return sy.Federation(CLIENTS, net(), algorithm, rounds=4, engine="serial")

    again = pickle.loads(pickle.dumps(made().run(rounds=2)))
    assert bits(made().resume(again).model_of("oslo")) == bits(made().run().model_of("oslo"))


@pytest.mark.parametrize("preset", ["fedavg", "ba-bfl", "chfl"])
def test_models_of_presets_can_be_pickled(preset: str) -> None:
    small = {"data.clients": 3, "training.steps": 1}
    small |= {"data.dataset": "digit-pixels", "model": "random-mlp"} if preset == "chfl" else {}
    result = sy.run(preset, out=None, rounds=1, **small)
    for model in (result.model, result.model_of("client-1")):
        assert bits(pickle.loads(pickle.dumps(model))) == bits(model) == bits(copy.deepcopy(model))


def run_in_process(engine: Any) -> Result:
    clients = {f"{name}-{number}": data for name, data in CLIENTS.items() for number in range(9)}
    made = sy.Federation(clients, linear(), test=TEST, rounds=2, engine=engine)
    return made.run(progress=False)


@pytest.fixture(scope="module")
def wanted() -> dict[str, Result]:
    return {engine: run_in_process(engine) for engine in ("serial", "auto", "vectorized")}


ENGINES = ["auto", "serial", {"name": "pool", "workers": 2}, {"name": "vectorized", "workers": 2}]
SPAWN = multiprocessing.get_context("spawn")  # not a fork: threads of OpenMP do not survive it


def check(results: list[Result], wanted: dict[str, Result]) -> None:
    for engine, result in zip(ENGINES, results, strict=True):
        name = engine if isinstance(engine, str) else engine["name"]
        same = wanted["serial" if name == "pool" else name]
        assert bits(result.model) == bits(same.model), name
        assert result.history == same.history


def test_every_engine_runs_in_a_pool_of_multiprocessing(wanted: dict[str, Result]) -> None:
    with SPAWN.Pool(1) as pool:
        check(pool.map(run_in_process, ENGINES), wanted)


def test_every_engine_runs_in_a_process_pool_executor(wanted: dict[str, Result]) -> None:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        check(list(pool.map(run_in_process, ENGINES)), wanted)
