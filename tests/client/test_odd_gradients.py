"""Gradients that lie otherwise in memory, are shared, sparse or missing are followed as torch does."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import steelyard as sy
from steelyard.objectives import Proximal
from steelyard.settings import Training


class Position(nn.Module):
    """A parameter that lies channels-last while its gradient comes contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 6, 3), nn.Linear(6, 3)
        self.position = nn.Parameter(torch.randn(1, 6, 6, 6))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(torch.tanh(self.conv(inputs) + self.position).mean((2, 3)))


class Scale(nn.Module):
    """A gradient that is one expanded number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(192, 3), nn.Parameter(torch.ones(3, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs.flatten(1)) * self.scale.sum()


class Added(nn.Module):
    """Two parameters with one and the same gradient, and one that is not used at all."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(3, 192) / 9), nn.Parameter(torch.randn(3, 192) / 9)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs.flatten(1), self.a + self.b)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("make", [Position, Scale, Added])
def test_odd_gradients_are_followed_as_torch_does(make: type[nn.Module], mu: float, optimizer: str) -> None:
    torch.manual_seed(0)
    model, inputs, targets = make(), torch.randn(12, 3, 8, 8), torch.arange(12) % 3
    training = Training(optimizer=optimizer, lr=0.02, weight_decay=0.1, batch_size=12, epochs=5)
    algorithm = sy.Algorithm(objective=Proximal(mu=mu), training=training)
    found = sy.Federation({"a": (inputs, targets)}, model, algorithm, rounds=1).run().model.state_dict()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    plain = kind(model.parameters(), lr=0.02, weight_decay=0.1)
    for _ in range(5):
        plain.zero_grad()
        used = [(now, then) for now, then in zip(model.parameters(), start, strict=True) if len(now) != 2]
        distance = sum(((now - then) ** 2).sum() for now, then in used)
        (F.cross_entropy(model(inputs), targets) + mu / 2 * distance).backward()
        plain.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=2e-4)


def test_a_sparse_gradient_is_followed() -> None:
    model = nn.Sequential(nn.Embedding(6, 3, sparse=True), nn.Flatten())
    data = (torch.arange(6).view(6, 1), torch.arange(6) % 3)
    assert sy.Federation({"a": data}, model, rounds=1).run().history[0]["used"] == 1
