"""Max pooling that is faster than torch's on CPUs, above all where channels come last."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

DIMS = (2, 3)  # height and width
# Of channels-last images: torch's own pooling with gradients is faster below so many values, or with as many
# channels, which fill its vectors, below four times as many.
MIN_VALUES, FULL_CHANNELS = 1 << 15, 16


class BlockMaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d` without overlap, as maxima of strided slices.

    Values have the bits of torch's. With gradients, blocks of 2×2 are pooled so. Of equal values in a block,
    torch gives the gradient to the first in its rows; here it goes to the first in its columns.
    """

    def forward(self, input: Tensor) -> Tensor:
        size, pooled = self.stride, input
        assert isinstance(size, int)
        is_plain = input.dim() == 4 and input.device.type == "cpu"
        if is_plain and not (torch.is_grad_enabled() and input.requires_grad):
            for dim in DIMS:
                pooled = functools.reduce(torch.maximum, _slices(pooled, dim, size))
        elif is_plain and size == 2 and _pays(input):
            pooled = _Pooling.apply(input)  # type: ignore[no-untyped-call]
        else:
            pooled = super().forward(input)
        return pooled


def _pays(images: Tensor) -> bool:
    """Whether pooling 2×2 with gradients is faster here than in torch (`benchmarks/memory_format.py`)."""
    least = MIN_VALUES if images.shape[1] < FULL_CHANNELS else 4 * MIN_VALUES
    return min(images.shape[2:]) > 1 and (images.numel() >= least or images.is_contiguous())


def _slices(images: Tensor, dim: int, size: int) -> list[Tensor]:
    """Every first, every second, ... of `size` neighbours along a dimension; no copies.

    A remainder at the end is left out.
    """
    end = images.shape[dim] // size * size
    before = (slice(None),) * dim
    return [images[*before, start:end:size] for start in range(size)]


class _Pooling(Function):
    """2×2 max pooling: of every two rows, then of every two columns."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        shapes, masks = [], []
        for dim in DIMS:
            first, second = _slices(images, dim, 2)
            shapes.append(images.shape)
            images = torch.maximum(first, second)
            # 1 where the second is larger. Comparing into numbers takes a third of the time of into bools.
            masks.append(torch.gt(second, first, out=torch.empty_like(images)))
        ctx.shapes = shapes
        ctx.save_for_backward(*masks)
        return images

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _PoolingBackward.apply(gradient, ctx.shapes, *ctx.saved_tensors)  # type: ignore[no-untyped-call]


class _PoolingBackward(Function):
    """The gradient by the images, and its own gradient: pooling chooses values, and masks say which."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, shapes: Sequence[torch.Size], *masks: Tensor) -> Tensor:
        ctx.save_for_backward(*masks)
        for dim, shape, mask in reversed(list(zip(DIMS, shapes, masks, strict=True))):
            found = _empty(shape, like=mask)
            first, second = _slices(found, dim, 2)
            torch.mul(gradient, mask, out=second)
            torch.sub(gradient, second, out=first)
            if shape[dim] % 2:
                found.select(dim, -1).zero_()
            gradient = found
        return gradient

    @staticmethod
    def backward(ctx: Any, d_images: Tensor) -> Any:
        for dim, mask in zip(DIMS, ctx.saved_tensors, strict=True):
            first, second = _slices(d_images, dim, 2)
            d_images = torch.lerp(first, second, mask)  # exact: a mask has only 0 and 1
        return d_images, None, *(None for _ in ctx.saved_tensors)


def _empty(shape: torch.Size, like: Tensor) -> Tensor:
    """A new tensor with the type and the order of dimensions of another."""
    last = like.is_contiguous(memory_format=torch.channels_last) and not like.is_contiguous()
    format = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, memory_format=format)


def quicken_pooling(model: nn.Module) -> nn.Module:
    """Replace every non-overlapping max pooling of a model by `BlockMaxPool2d`, in place."""
    for module in model.modules():
        if type(module) is nn.MaxPool2d and _is_blockwise(module):
            module.__class__ = BlockMaxPool2d
    return model


def _is_blockwise(pool: nn.MaxPool2d) -> bool:
    square = isinstance(pool.kernel_size, int) and pool.kernel_size > 1
    plain = pool.padding == 0 and pool.dilation == 1 and not pool.ceil_mode and not pool.return_indices
    return square and plain and pool.stride == pool.kernel_size
