"""Code that draws from numpy or `random` is seeded for each client and round, in every engine."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from test_containment import honest, model
from torch import Tensor, nn
from torch.utils.data import Dataset

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.server.result import Result


class Drawing(Dataset[tuple[Tensor, int]]):
    """Augments with numpy and `random`."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = np.random.randn(4) + random.gauss(0, 1)
        return torch.tensor(noise, dtype=torch.float32), index % 3


class DrawingModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = model()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs) * (1 + 0.1 * np.random.rand()) + 0.1 * random.random()
        return outputs


def drawing(engine: Engine, network: nn.Module) -> Result:
    parts = [Client(name, Drawing(), Drawing(), Drawing()) for name in "abc"]
    lazy = sy.Population("abc", lambda name: Client(name, (np.random.rand(12, 4), np.arange(12) % 3)))
    clients = parts if isinstance(network, nn.Linear) else lazy
    return sy.Federation(clients, network, engine=engine, rounds=2, test=Drawing()).run()


@pytest.mark.parametrize("kind", [model, DrawingModel])
def test_what_is_drawn_from_numpy_and_random_depends_on_the_seed_alone(kind: Any) -> None:
    network, results = kind(), []
    engines: list[Engine] = [Serial(), Serial(), Pool(1), Pool(2), Pool(2)]
    for number, engine in enumerate(engines):
        np.random.seed(number)
        random.seed(number)
        expected = np.random.RandomState(number).rand(), random.Random(number).random()
        results.append(drawing(engine, network))
        assert (np.random.rand(), random.random()) == expected, "the caller's generators go on as they were"
    for result in results[1:]:
        assert result.history == results[0].history
        assert result.clients == results[0].clients


def test_clients_trained_together_draw_what_they_draw_alone() -> None:
    alone, *together = (drawing(engine, model()) for engine in (Serial(), Vectorized(1), Vectorized(2)))
    for result in together:
        torch.testing.assert_close(result.model.weight, alone.model.weight, rtol=1e-4, atol=1e-6)
    assert together[0].history == together[1].history


def test_a_model_that_draws_is_not_trained_together() -> None:
    with pytest.raises(InputError, match="draws from numpy"):
        run_model(Vectorized(1), DrawingModel())


def run_model(engine: Engine, network: nn.Module) -> Result:
    return sy.Federation(honest(), network, engine=engine, rounds=1).run()
