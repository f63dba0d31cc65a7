"""Layers whose gradient is itself quick to differentiate, for objectives that are made of gradients.

torch differentiates a convolution's gradient through convolutions of unusual shapes, with the batch as
channels and whole images as kernels, and a pooling's with tensors of zeros. The same derivatives are ordinary
convolutions and their gradients, and a gather.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
_convolve, _deconvolve = aten.convolution.default, aten.convolution_backward.default
_pool, _unpool = aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default


class FastDoubleBackward(TorchFunctionMode):
    """Inside this context, 2-d convolutions and max poolings are made to be differentiated twice.

    Values and derivatives are torch's, up to rounding.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _INSTEAD.get(func, func)(*args, **(kwargs or {}))


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    pairs = all(isinstance(each, tuple) for each in (stride, padding, dilation))
    if not pairs or input.dim() != 4 or not weight.requires_grad:  # not a trained `nn.Conv2d` on a batch
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    settings = (stride, padding, dilation, False, (0, 0), groups)
    return _Convolution.apply(input, weight, bias, settings)  # type: ignore[no-untyped-call]


def _max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if return_indices or input.dim() != 4:
        plain: Any = F.max_pool2d
        return plain(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    settings = (kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode)
    return _Pooling.apply(input, settings)  # type: ignore[no-untyped-call]


_INSTEAD: Mapping[Callable[..., Any], Callable[..., Any]] = {
    F.conv2d: _conv2d,
    F.max_pool2d: _max_pool2d,
}


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, settings: Any) -> Any:
        ctx.save_for_backward(inputs, weight)
        ctx.settings = settings
        return _convolve(inputs, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        arguments = (slope, *ctx.saved_tensors, ctx.settings, ctx.needs_input_grad[:3])
        return *_ConvolutionSlopes.apply(*arguments), None  # type: ignore[no-untyped-call]


class _ConvolutionSlopes(Function):
    """The gradients by inputs, weight and bias: each is linear in the slope and in one of the others."""

    @staticmethod
    def forward(
        ctx: Any, slope: Tensor, inputs: Tensor, weight: Tensor, settings: Any, wanted: Sequence[bool]
    ) -> Any:
        ctx.save_for_backward(slope, inputs, weight)
        ctx.settings, ctx.wanted = settings, wanted
        return _deconvolve(slope, inputs, weight, [len(weight)], *settings, wanted)

    @staticmethod
    def backward(ctx: Any, by_inputs: Tensor, by_weight: Tensor, by_bias: Tensor) -> Any:
        slope, inputs, weight = ctx.saved_tensors
        to_slope = _convolve(inputs, by_weight, by_bias if ctx.wanted[2] else None, *ctx.settings)
        if not ctx.wanted[0]:
            return to_slope, None, None, None, None
        to_slope += _convolve(by_inputs, weight, None, *ctx.settings)
        inputs_only, weight_only = (True, False, False), (False, True, False)
        to_inputs = _deconvolve(slope, inputs, by_weight, None, *ctx.settings, inputs_only)[0]
        to_weight = _deconvolve(slope, by_inputs, weight, None, *ctx.settings, weight_only)[1]
        return to_slope, to_inputs, to_weight, None, None


class _Pooling(Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, settings: Any) -> Any:
        pooled, places = _pool(images, *settings)
        ctx.save_for_backward(images, places)
        ctx.settings = settings
        return pooled

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        images, places = ctx.saved_tensors
        arguments = (slope, images.detach(), places, ctx.settings)
        return _PoolingSlopes.apply(*arguments), None  # type: ignore[no-untyped-call]


class _PoolingSlopes(Function):
    """The gradient by the images: each slope goes where the largest value was."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, images: Tensor, places: Tensor, settings: Any) -> Any:
        ctx.save_for_backward(places)
        return _unpool(slope, images, *settings, places)

    @staticmethod
    def backward(ctx: Any, by_images: Tensor) -> Any:
        (places,) = ctx.saved_tensors
        return _pick(by_images, places), None, None, None


def _pick(images: Tensor, places: Tensor) -> Tensor:
    """The values at these places of each image, without turning images round that lie channels-last."""
    if images.is_contiguous():
        return images.flatten(2).gather(2, places.flatten(2)).view(places.shape)
    last = places.permute(0, 2, 3, 1)
    picked = images.permute(0, 2, 3, 1).flatten(1, 2).gather(1, last.flatten(1, 2))
    return picked.view(last.shape).permute(0, 3, 1, 2)
