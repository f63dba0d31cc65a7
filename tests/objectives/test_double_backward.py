"""Convolutions and poolings are differentiated twice as autograd does it, only quicker."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aligning import (
    FORMS,
    IMAGES,
    TARGETS,
    bind,
    convolutions,
    full,
    of_trained,
    penalty,
    put,
    some_direction,
    trained,
    vector,
    wander,
)
from torch import Tensor, nn

from steelyard.client.working_model import working_copy_of, working_model_in
from steelyard.nn import pooling
from steelyard.nn.zoo import light_cnn
from steelyard.objectives import Alignment, CrossEntropy
from steelyard.objectives.double_backward import FastDoubleBackward

channels_last_copy_of = partial(working_copy_of, memory_format=torch.channels_last)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("scratch", [working_model_in, working_copy_of, channels_last_copy_of])
def test_convolutions_and_poolings_are_differentiated_twice_as_autograd_does(
    scratch: Any, activation: Any, form: Any
) -> None:
    model = scratch(convolutions(activation)).model
    direction, start = some_direction(model), vector(model)
    local_loss = bind(Alignment(0.7, form), model, direction)
    wander(model)
    plain = convolutions(activation)
    put(plain, vector(model))
    loss = F.cross_entropy(plain(IMAGES), TARGETS) + 0.7 * penalty(plain, form, direction, start, IMAGES)
    wanted = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained(plain))])
    torch.testing.assert_close(full(model, local_loss, IMAGES), wanted, rtol=1e-9, atol=1e-11)
    without = full(model, bind(CrossEntropy(), model, None), IMAGES)
    assert not torch.allclose(wanted, without, rtol=1e-2)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_the_light_cnn_in_its_scratch_agrees_with_autograd_on_the_plain_model(
    format: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "MIN_VALUES", 0)
    torch.manual_seed(0)
    plain, images = light_cnn((1, 28, 28), 3), torch.randn(12, 1, 28, 28)
    model = working_copy_of(plain, format).model
    direction = some_direction(plain).float()
    found = full(model, bind(Alignment(0.7), model, direction), images)
    loss = F.cross_entropy(plain(images), TARGETS)
    loss = loss + 0.7 * penalty(plain, "gradient", direction, direction, images)
    wanted = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained(plain))])
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


ODD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "keywords": lambda images, weight: F.conv2d(images, weight, stride=2, padding=1),
    "a word for the padding": lambda images, weight: F.conv2d(images, weight, None, 1, "same"),
    "one image": lambda images, weight: F.conv2d(images[0], weight, None, (1, 1), (0, 0), (1, 1), 1),
    "pooling one image": lambda images, weight: F.max_pool2d(F.conv2d(images, weight)[0], 2),
    "pooling with places": lambda images, weight: F.max_pool2d_with_indices(F.conv2d(images, weight), 2)[0],
    "ragged pooling": lambda images, weight: F.max_pool2d(F.conv2d(images, weight), 3, 2, ceil_mode=True),
    "dilated pooling": lambda images, weight: F.max_pool2d(F.conv2d(images, weight), (2, 1), dilation=2),
    "a weight that does not learn": lambda images, weight: F.conv2d(
        F.conv2d(images, weight), weight.detach(), None, (1, 1), (0, 0), (1, 1), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", list(ODD))
def test_odd_convolutions_and_poolings_are_differentiated_twice_too(odd: str) -> None:
    images = IMAGES[:3].clone().requires_grad_()
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight.requires_grad_()

    def second() -> list[Tensor]:
        value = ODD[odd](images, weight).tanh().square().sum()
        first = torch.autograd.grad(value, [images, weight], create_graph=True)
        return [value, *torch.autograd.grad(sum(part.tanh().sum() for part in first), [images, weight])]

    with FastDoubleBackward():
        found = second()
    for mine, wanted in zip(found, second(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-12)


def test_a_convolution_with_a_bias_alone_to_learn_is_left_to_torch() -> None:
    model = convolutions()
    for layer in (0, 6):
        model[layer].weight.requires_grad_(False)
    model[7].bias.requires_grad_(False)
    direction = some_direction(model)
    found = full(model, bind(Alignment(0.7), model, direction), IMAGES)
    mine = of_trained(model, direction)
    loss = F.cross_entropy(model(IMAGES), TARGETS) + 0.7 * penalty(model, "gradient", mine, mine, IMAGES)
    wanted = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained(model))])
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
