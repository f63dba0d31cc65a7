"""The zoo: every model fits the images it is offered for, and is as large as the papers say."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from steelyard.errors import InputError
from steelyard.nn import zoo

MNIST, CIFAR, DIGITS = (1, 28, 28), (3, 32, 32), (1, 8, 8)
Factory = Callable[..., nn.Module]


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("factory", "shape"),
    [
        *(
            (factory, shape)
            for factory in (zoo.linear, zoo.logistic, zoo.mlp)
            for shape in (MNIST, CIFAR, DIGITS, (7,))
        ),
        *((factory, shape) for factory in (zoo.light_cnn, zoo.hybrid_cnn) for shape in (MNIST, CIFAR)),
    ],
)
def test_a_model_maps_a_batch_to_one_number_per_class(factory: Factory, shape: tuple[int, ...]) -> None:
    model = factory(shape, 7)
    inputs = torch.randn(5, *shape)
    assert model(inputs).shape == (5, 7)
    model(inputs).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("factory", "shape", "settings", "parameters"),
    [
        (zoo.logistic, MNIST, {}, 784 * 10 + 10),
        (zoo.linear, (7,), {"bias": False}, 7 * 10),
        # 10 symbols of 8 numbers; four gates of 64 with two biases each; 10 outputs
        (zoo.char_lstm, (80,), {}, 10 * 8 + 4 * 64 * (8 + 64 + 2) + 64 * 10 + 10),
        (zoo.char_lstm, (5,), {"embed": 2, "hidden": 3, "layers": 2}, 20 + 12 * (2 + 3 + 2) + 12 * 8 + 40),
        (zoo.mlp, DIGITS, {}, (64 * 64 + 64) + (64 * 10 + 10)),
        (zoo.mlp, DIGITS, {"hidden": 5, "layers": 2}, (64 * 5 + 5) + (5 * 5 + 5) + (5 * 10 + 10)),
        (zoo.mlp, DIGITS, {"layers": 0}, 64 * 10 + 10),
        # 28 → 24 → 12 → 8 → 4: (1·25 + 1)·10 + (10·25 + 1)·20 + (20·16 + 1)·50 + (50 + 1)·10
        (zoo.light_cnn, MNIST, {}, 260 + 5_020 + 16_050 + 510),
        # 32 → 28 → 14 → 10 → 5
        (zoo.light_cnn, CIFAR, {}, 760 + 5_020 + 25_050 + 510),
        # (25 + 1)·6 + (6·25 + 1)·16 + (16·16 + 1)·120 + (120 + 1)·84 + (84 + 1)·10
        (zoo.hybrid_cnn, MNIST, {}, 156 + 2_416 + 30_840 + 10_164 + 850),
    ],
)
def test_the_number_of_parameters_as_counted_by_hand(
    factory: Factory, shape: tuple[int, ...], settings: dict[str, Any], parameters: int
) -> None:
    assert size(factory(shape, 10, **settings)) == parameters


@pytest.mark.parametrize(("factory", "name"), [(zoo.light_cnn, "light-cnn"), (zoo.hybrid_cnn, "hybrid-cnn")])
@pytest.mark.parametrize("shape", [DIGITS, (1, 15, 28), (1, 28, 15), (784,), (28, 28)])
def test_images_too_small_for_two_convolutions_are_refused(
    factory: Factory, name: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match=f"{name} needs images of at least 16×16"):
        factory(shape, 10)


@pytest.mark.parametrize("factory", [zoo.light_cnn, zoo.hybrid_cnn])
@pytest.mark.parametrize("shape", [(1, 16, 16), (2, 17, 30)])
def test_the_smallest_and_oblong_images_fit(factory: Factory, shape: tuple[int, ...]) -> None:
    assert factory(shape, 3)(torch.randn(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize(
    ("factory", "convolutions", "settings"),
    [
        (zoo.linear, 0, {}),
        (zoo.logistic, 0, {}),
        (zoo.mlp, 0, {"layers": 2}),
        (zoo.light_cnn, 2, {}),
        (zoo.hybrid_cnn, 2, {}),
    ],
)
def test_a_model_computes_its_formula(factory: Factory, convolutions: int, settings: dict[str, Any]) -> None:
    model = factory(MNIST, 10, **settings)
    inputs = torch.randn(3, *MNIST, generator=torch.Generator().manual_seed(0))
    tensors = list(model.parameters())
    *layers, last = zip(tensors[::2], tensors[1::2], strict=True)  # weight and bias in turn
    hidden = inputs
    for weight, bias in layers[:convolutions]:
        hidden = F.max_pool2d(F.relu(F.conv2d(hidden, weight, bias)), 2)
    hidden = hidden.flatten(1)
    for weight, bias in layers[convolutions:]:
        hidden = F.relu(F.linear(hidden, weight, bias))
    torch.testing.assert_close(model(inputs), F.linear(hidden, *last))


def test_char_lstm_computes_its_formula() -> None:
    model = zoo.char_lstm((6,), 9, embed=3, hidden=4)
    text = torch.randint(0, 9, (5, 6), generator=torch.Generator().manual_seed(0))
    embedding, to_gates, from_hidden, bias, other, weight, last_bias = model.parameters()
    hidden = cell = torch.zeros(5, 4)
    for characters in text.T:
        gates = F.linear(embedding[characters], to_gates, bias) + F.linear(hidden, from_hidden, other)
        enter, forget, value, leave = gates.chunk(4, dim=1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * value.tanh()
        hidden = leave.sigmoid() * cell.tanh()
    torch.testing.assert_close(model(text), F.linear(hidden, weight, last_bias))


def test_char_lstm_accepts_sequences_of_characters_only() -> None:
    with pytest.raises(InputError, match=r"char-lstm needs sequences of characters, .* \(1, 8, 8\)"):
        zoo.char_lstm(DIGITS, 10)
