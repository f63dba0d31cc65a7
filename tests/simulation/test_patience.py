"""`patience` watches the best score that there is, in classification and regression, also after a resume."""

from typing import Any

import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.objectives import SquaredError
from steelyard.server.federation import advance
from steelyard.settings import Training

pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.SelectionWarning")
Data = tuple[torch.Tensor, torch.Tensor]


def data(seed: int, regression: bool) -> Data:
    inputs = torch.randn(16, 3, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs.sum(dim=1) if regression else (inputs[:, 0] > 0).long()


def federation(regression: bool, tested: str, **settings: Any) -> Any:
    """A learning rate of almost 0: after a few rounds nothing gets better."""
    torch.manual_seed(0)
    own = {"test": data(8, regression)} if tested == "clients" else {}
    clients = [Client(name, data(number, regression), **own) for number, name in enumerate("abc")]
    test = data(9, regression) if tested == "server" else None
    objective = {"objective": SquaredError()} if regression else {}
    algorithm = sy.Algorithm(training=Training(lr=1e-12), **objective)
    model = nn.Linear(3, 1 if regression else 2)
    return sy.Federation(clients, model, algorithm, test=test, rounds=30, **settings)


@pytest.mark.parametrize("tested", ["server", "clients", "nothing"])
@pytest.mark.parametrize("regression", [False, True], ids=["classes", "numbers"])
def test_a_run_that_gets_no_better_stops(regression: bool, tested: str) -> None:
    result = federation(regression, tested, patience=3).run()
    assert len(result.history) < 15
    assert len(federation(regression, tested).run().history) == 30


def test_a_resumed_run_stops_in_the_same_round() -> None:
    whole = federation(True, "nothing", patience=3).run()

    first = federation(True, "nothing", patience=3)
    with first.open() as sites:
        server = first.server(sites)
        state = server.init()
        for _ in range(3):
            _, state = advance(server, state)
    rest = federation(True, "nothing", patience=3).run(state=state)
    assert rest.history[-1]["round"] == whole.history[-1]["round"]
