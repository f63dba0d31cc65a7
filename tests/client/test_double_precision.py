"""Models of float64 train on arrays in full precision; models of float32 see what they always saw."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.data.examples import examples
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.objectives import SquaredError
from steelyard.settings import Training

INPUTS = np.random.RandomState(0).randn(24, 3)
NUMBERS = INPUTS @ [0.1, 0.2, 0.3]


def model(outputs: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, outputs).to(dtype)


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index], index % 2


def plain_step(inputs: Tensor, targets: Tensor, network: nn.Module) -> Tensor:
    loss = ((network(inputs).squeeze(1) - targets) ** 2).mean()
    loss.backward()
    weight, gradient = network.weight, network.weight.grad
    assert gradient is not None
    return weight.detach() - 0.1 * gradient  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("engine", [Serial(), Pool(1), Vectorized(1)])
def test_a_step_on_arrays_is_made_in_the_precision_of_the_model(engine: Engine, dtype: torch.dtype) -> None:
    algorithm = sy.Algorithm(
        objective=SquaredError(), training=Training(lr=0.1, batch_size=24, weight_decay=0, momentum=0)
    )
    clients = [Client("a", (INPUTS, NUMBERS), (INPUTS, NUMBERS))]
    result = sy.Federation(
        clients, model(1, dtype), algorithm, rounds=1, engine=engine, test=(INPUTS, NUMBERS)
    ).run()
    wanted = plain_step(torch.tensor(INPUTS).to(dtype), torch.tensor(NUMBERS).to(dtype), model(1, dtype))
    assert result.model.weight.dtype == dtype
    tolerance = 1e-14 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(result.model.weight, wanted, rtol=tolerance, atol=tolerance)
    assert result.history[0]["mse"] > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_data_sets_bytes_and_populations_fit_too(dtype: torch.dtype) -> None:
    pixels = (INPUTS * 20 + 100).astype(np.uint8)
    labels = np.arange(24) % 2
    for clients in (
        {"a": Rows(), "b": (INPUTS, labels)},
        {"a": examples(pixels, labels, std=1)},
        sy.Population("ab", lambda name: (INPUTS, labels)),
    ):
        result = sy.Federation(clients, model(2, dtype), rounds=1, engine=Serial()).run()
        assert {row["status"] for row in result.clients} == {"used"}
        assert result.model.weight.dtype == dtype


def test_arrays_of_float64_come_as_float32_unless_the_model_asks_for_more() -> None:
    data = examples(INPUTS, NUMBERS)
    assert data.batch(torch.arange(2))[0].dtype == torch.float32
    assert data.labels.dtype == torch.float32
    double = data.to(torch.float64)
    inputs, targets = double.batch(torch.arange(24))
    assert np.array_equal(inputs.numpy(), INPUTS)
    assert np.array_equal(targets.numpy(), NUMBERS)
    assert torch.equal(data.batch(torch.arange(24))[0], torch.tensor(INPUTS).float())
