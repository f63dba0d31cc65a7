"""Stacked copies of a model compute what each copy computes alone, layer by layer or under vmap."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steelyard.engines.stacked_model import StackedModel, perceptron_layers


class Tied(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        self[2].weight = self[0].weight


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    return model


def repeated() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))
    model[0].register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return model


PLAIN = {
    "logistic": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), (2, 3)),
    "perceptron": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3)), (6,)),
    "in place": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)), (6,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.Tanh(), nn.Linear(5, 3)), (6,)),
    "tokens": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Flatten(), nn.Linear(20, 3)), (4, 6)),
}
OTHERS = {
    "tied": (tied, (6,)),
    "repeated": (repeated, (6,)),
    "hooked": (hooked, (6,)),
    "part of the dimensions": (lambda: nn.Sequential(nn.Flatten(2), nn.Linear(6, 2)), (3, 6)),
    "other layers": (lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)), (6,)),
}


def stacked(model: nn.Module, count: int = 3) -> StackedModel:
    """Copies with weights of their own."""
    found = StackedModel(model, count)
    for stack in found.stacks.values():
        stack.add_(torch.randn(stack.shape, generator=torch.Generator().manual_seed(1)))
    return found


def each_alone(model: nn.Module, together: StackedModel, inputs: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
    """Outputs and gradients of every copy, from the model itself."""
    outputs, gradients = [], []
    for row, part in zip(together.rows, inputs.chunk(len(together.rows)), strict=True):
        named = dict(model.named_parameters())
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(row[name])
        outputs.append(model(part.clone()))
        gradients.append([*torch.autograd.grad(outputs[-1].square().sum(), [*named.values()])])
    return torch.cat(outputs), gradients


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_stacked_copies_compute_what_each_computes_alone(name: str) -> None:
    make, shape = (PLAIN | OTHERS)[name]
    torch.manual_seed(0)
    model: nn.Module = make().double()
    together = stacked(model)
    assert (together.layers is not None) == (name in PLAIN)
    inputs = torch.randn(12, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    parameters = together.use(3)
    found = together(inputs.clone())
    gradients = torch.autograd.grad(found.square().sum(), parameters)
    wanted, by_copy = each_alone(model, together, inputs)
    torch.testing.assert_close(found, wanted)
    for place, gradient in enumerate(gradients):
        torch.testing.assert_close(gradient, torch.stack([each[place] for each in by_copy]))


def test_a_class_of_ones_own_is_no_perceptron() -> None:
    assert perceptron_layers(Tied()) is None


def test_a_buffer_is_the_same_for_all_copies() -> None:
    model: Any = nn.Sequential(nn.Linear(6, 2))
    model.register_buffer("scale", torch.tensor([2.0, 3.0]))
    together = stacked(model)
    assert torch.equal(together.stack("scale"), torch.tensor([[2.0, 3.0]] * 3))
    assert together.stack("0.weight").shape == (3, 2, 6)
