"""Regression from a spec to a result, on every engine."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.objectives import SquaredError
from steelyard.server.result import Result
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.specs.building import deal_clients
from steelyard.specs.schema import load_spec

SPEC: dict[str, Any] = {
    "data.dataset": {"name": "synthetic-linear", "features": 10, "rows": 50, "noise": [0.1, 0.4]},
    "data.partition": "natural",
    "data.clients": 5,
    "model": {"name": "linear", "bias": False},
    "objective": "squared-error",
    "training.lr": 0.05,
    "rounds": 15,
}


@pytest.mark.parametrize("engine", ["serial", {"name": "pool", "workers": 2}, "vectorized", "auto"], ids=str)
def test_a_run_comes_near_the_truth_on_every_engine(engine: Any) -> None:
    result = sy.run(out=None, **SPEC, engine=engine)
    first, last = result.history[0], result.history[-1]
    assert len(result.history) == 15
    assert last["mse"] < 0.01 < 0.1 < first["mse"]
    assert last["r2"] > 0.98
    assert last["client_mse"] == pytest.approx(last["mse"]), "everyone is tested on the common test set"
    assert not {"accuracy", "nll", "client_accuracy"} & last.keys()
    assert math.isnan(result.accuracy)


def test_a_recorded_run_without_accuracy_can_be_resumed(tmp_path: Any) -> None:
    short = sy.run(out=tmp_path, **{**SPEC, "rounds": 2})
    assert short.path is not None
    assert sy.resume(short.path).history[-1]["mse"] == short.history[-1]["mse"]


def test_clients_of_numbers_are_tested_on_the_whole_test_set() -> None:
    spec = load_spec(None, SPEC)
    dataset = sy.data.sources.synthetic_linear(features=10, rows=50)
    for client in deal_clients(spec.data, dataset).values():
        assert client.test is not None
        assert torch.equal(client.test.labels, dataset.test.labels)


class Lazy(Dataset[tuple[Tensor, float]]):
    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        return self.inputs[index], float(self.targets[index])


def run(engine: Engine, kind: str) -> Result:
    """Sizes that leave short batches, and a target of -1, which marks such gaps among class numbers."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for size in (1, 3, 8, 13, 20):
        inputs = torch.randn(size, 4, generator=generator)
        targets = inputs.sum(1).round()
        targets[0] = -1
        data = Lazy(inputs, targets) if kind == "lazy" else (inputs, targets)
        clients.append(Client(f"c{size:02d}", data))
    torch.manual_seed(0)
    algorithm = sy.Algorithm(objective=SquaredError(), training=sy.Training(lr=0.05, batch_size=8, epochs=2))
    return Federation(clients, nn.Linear(4, 1), algorithm, rounds=3, engine=engine).run()


@pytest.mark.parametrize("kind", ["table", "lazy"])
def test_together_is_as_alone(kind: str) -> None:
    alone, pool, together = (run(engine, kind) for engine in (Serial(), Pool(2), Vectorized(1)))
    assert alone.clients == pool.clients
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(together.model.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(together.clients, alone.clients, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert theirs["loss"] > 0


def test_classes_that_a_partition_needs_are_asked_for_in_a_sentence() -> None:
    with pytest.raises(InputError, match="this partition needs one whole-number label per row"):
        sy.run(out=None, **{**SPEC, "data.partition": "dirichlet"})
