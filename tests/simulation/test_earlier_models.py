"""Memory is used again from round to round; what a callback or an observer keeps stays as it was."""

from typing import Any

import pytest
import torch
from small_federation import CLIENTS, blobs, linear
from torch import Tensor, nn

import steelyard as sy
from steelyard.layout import LARGE, flatten, layout_of, tensors_of


class Keeps:
    """A callback that keeps the vectors of every round, and copies of them."""

    def __init__(self) -> None:
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.models: list[tuple[nn.Module, Tensor]] = []

    def __call__(self, event: Any) -> None:
        server = event.state.server
        vectors = [server.message.mean, server.velocity, server.average and server.average.mean]
        self.kept += [(each, each.clone()) for each in vectors if each is not None]
        self.models.append((event.model, vector_of(event.model)))


def vector_of(model: nn.Module) -> Tensor:
    return flatten(tensors_of(model), layout_of(model))


@pytest.mark.parametrize("engine", ["serial", "pool", "vectorized"])
def test_models_of_earlier_rounds_do_not_change(engine: str) -> None:
    keeps = Keeps()
    algorithm = sy.Algorithm(weighing="majority", server={"momentum": 0.9, "average": 3, "lr": 0.5})
    federation = sy.Federation(CLIENTS, linear(), algorithm, rounds=4, engine=engine, monitor="loss")
    federation.run(callbacks=keeps, progress=False)
    assert len(keeps.kept) == 12
    assert all(torch.equal(vector, copied) for vector, copied in keeps.kept)
    assert all(torch.equal(vector_of(model), copied) for model, copied in keeps.models)
    starts = [vector.untyped_storage().data_ptr() for vector, _ in keeps.kept]
    assert len(set(starts)) == len(starts)


def large() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 1000), nn.BatchNorm1d(1000), nn.Linear(1000, 600), nn.Linear(600, 3))


def test_clients_with_large_models_get_what_a_loop_by_hand_gets() -> None:
    """Updates of large models are written into their rows tensor by tensor."""
    assert layout_of(large()).size > LARGE
    algorithm = sy.Algorithm(training={"steps": 2, "batch_size": 64, "lr": 0.05})
    data = {name: blobs(64, place) for place, name in enumerate(("lima", "oslo", "pisa"))}
    results = [
        sy.Federation(data, large(), algorithm, rounds=2, engine=engine).run(progress=False).model
        for engine in ("serial", "pool")
    ]
    assert torch.equal(vector_of(results[0]), vector_of(results[1]))
    wanted = large().train()
    for _ in range(2):
        start, trained = {name: each.clone() for name, each in wanted.state_dict().items()}, []
        for x, y in data.values():
            wanted.load_state_dict(start)
            optimizer = torch.optim.SGD(wanted.parameters(), lr=0.05)
            for _ in range(2):
                optimizer.zero_grad()
                nn.functional.cross_entropy(wanted(x), y).backward()
                optimizer.step()
            trained.append({name: each.clone() for name, each in wanted.named_parameters()})
        means = {name: sum(each[name] for each in trained) / 3 for name in trained[0]}
        wanted.load_state_dict({**wanted.state_dict(), **means})
    for name, each in results[0].named_parameters():
        torch.testing.assert_close(each, wanted.get_parameter(name), rtol=1e-4, atol=1e-5)
