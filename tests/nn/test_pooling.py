"""The quick max pooling gives torch's bits, and is used only where it does."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from steelyard.client.working_model import working_copy_of
from steelyard.nn import pooling
from steelyard.nn.pooling import BlockMaxPool2d, quicken_pooling


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(3, 4, 8, 8), (2, 10, 24, 24), (1, 3, 7, 9), (2, 1, 5, 4)])
@pytest.mark.parametrize("size", [2, 3])
def test_blocks_give_the_bits_of_torch(
    size: int, shape: tuple[int, ...], format: torch.memory_format
) -> None:
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=format)
    with torch.no_grad():
        assert torch.equal(BlockMaxPool2d(size)(images), nn.MaxPool2d(size)(images))


def test_what_is_not_a_number_stays_so() -> None:
    images = torch.tensor([[[[1.0, float("nan")], [float("inf"), 2.0]]]])
    with torch.no_grad():
        assert BlockMaxPool2d(2)(images).isnan().all()


def test_gradients_are_torchs_own() -> None:
    images = torch.zeros(1, 1, 4, 4, requires_grad=True)  # ties everywhere
    BlockMaxPool2d(2)(images).sum().backward()
    wanted = torch.zeros(4, 4)
    wanted[::2, ::2] = 1
    assert images.grad is not None
    assert torch.equal(images.grad[0, 0], wanted)


PLAIN = nn.MaxPool2d(2)
OTHERS = [
    nn.MaxPool2d(3, stride=2),
    nn.MaxPool2d(2, padding=1),
    nn.MaxPool2d(2, ceil_mode=True),
    nn.MaxPool2d(2, dilation=2),
    nn.MaxPool2d((2, 1)),
    nn.MaxPool2d(2, return_indices=True),
    nn.AvgPool2d(2),
]


def test_only_what_can_be_done_blockwise_is_replaced() -> None:
    model = quicken_pooling(nn.ModuleList(copy.deepcopy([PLAIN, *OTHERS])))
    assert [type(module) is BlockMaxPool2d for module in model] == [True] + [False] * len(OTHERS)


def test_a_scratch_model_pools_quickly_and_the_users_model_is_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 2))
    scratch = working_copy_of(model)
    assert type(scratch.model[1]) is BlockMaxPool2d
    assert type(model[1]) is nn.MaxPool2d
    assert scratch.tensors.keys() == model.state_dict().keys()
    with torch.no_grad():
        torch.testing.assert_close(scratch.model(torch.ones(2, 1, 8, 8)), model(torch.ones(2, 1, 8, 8)))


def images_of(shape: tuple[int, ...], format: torch.memory_format) -> torch.Tensor:
    draws = torch.Generator().manual_seed(0)
    found = torch.randn(shape, generator=draws, dtype=torch.float64).contiguous(memory_format=format)
    return found.requires_grad_()


FORMATS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(64, 10, 12, 12), (64, 20, 13, 13), (33, 3, 19, 21), (2, 3, 2, 1)])
def test_gradients_are_those_of_torch(shape: tuple[int, ...], format: torch.memory_format) -> None:
    images, others = images_of(shape, format), images_of(shape, format)
    if min(shape[2:]) < 2:
        with pytest.raises(RuntimeError, match="Output size is too small"):
            BlockMaxPool2d(2)(images)
        return
    found, wanted = BlockMaxPool2d(2)(images), nn.MaxPool2d(2)(others)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    assert torch.equal(found, wanted)
    assert images.grad is not None
    assert torch.equal(images.grad, others.grad)
    assert images.grad.stride() == images.stride()


def test_of_equal_values_only_one_gets_the_gradient() -> None:
    images = torch.zeros(1, 1, 2, 2, requires_grad=True)
    with torch.no_grad():
        images[0, 0, 0, 1] = images[0, 0, 1, 0] = 1.0
    BlockMaxPool2d(2)(images).sum().backward()
    assert images.grad is not None
    assert images.grad.flatten().tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("format", FORMATS)
def test_pooling_is_differentiated_twice(format: torch.memory_format, monkeypatch: Any) -> None:
    monkeypatch.setattr(pooling, "MIN_VALUES", 0)
    images = images_of((2, 3, 5, 4), format)
    assert torch.autograd.gradcheck(BlockMaxPool2d(2), (images,))
    assert torch.autograd.gradgradcheck(BlockMaxPool2d(2), (images,))
