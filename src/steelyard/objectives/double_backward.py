"""Convolutions and max poolings with a fast double backward, for objectives that contain gradients.

torch's double backward of a convolution uses convolutions of unusual shapes, with the batch as channels and
whole images as kernels; that of a max pooling uses tensors of zeros. Here the same derivatives are
ordinary convolutions and their gradients, and a gather.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
_convolve, _convolve_backward = aten.convolution.default, aten.convolution_backward.default
_pool, _pool_backward = aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default


class FastDoubleBackward(TorchFunctionMode):
    """Inside this context, 2-d convolutions and max poolings use the fast double backward.

    Values and derivatives equal torch's, up to rounding.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _REPLACEMENTS.get(func, func)(*args, **(kwargs or {}))


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


_REPLACEMENTS: Mapping[Callable[..., Any], Callable[..., Any]] = {
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
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        arguments = (grad_output, *ctx.saved_tensors, ctx.settings, ctx.needs_input_grad[:3])
        return *_ConvolutionBackward.apply(*arguments), None  # type: ignore[no-untyped-call]


class _ConvolutionBackward(Function):
    """Gradients by inputs, weight and bias; each is linear in grad_output and in weight or inputs."""

    @staticmethod
    def forward(
        ctx: Any, grad_output: Tensor, inputs: Tensor, weight: Tensor, settings: Any, needed: Sequence[bool]
    ) -> Any:
        ctx.save_for_backward(grad_output, inputs, weight)
        ctx.settings, ctx.needed = settings, needed
        return _convolve_backward(grad_output, inputs, weight, [len(weight)], *settings, needed)

    @staticmethod
    def backward(ctx: Any, d_inputs: Tensor, d_weight: Tensor, d_bias: Tensor) -> Any:
        """d_x is the derivative of the result by the gradient of x."""
        grad_output, inputs, weight = ctx.saved_tensors
        by_grad_output = _convolve(inputs, d_weight, d_bias if ctx.needed[2] else None, *ctx.settings)
        if not ctx.needed[0]:
            return by_grad_output, None, None, None, None
        by_grad_output += _convolve(d_inputs, weight, None, *ctx.settings)
        inputs_only, weight_only = (True, False, False), (False, True, False)
        by_inputs = _convolve_backward(grad_output, inputs, d_weight, None, *ctx.settings, inputs_only)[0]
        by_weight = _convolve_backward(grad_output, d_inputs, weight, None, *ctx.settings, weight_only)[1]
        return by_grad_output, by_inputs, by_weight, None, None


class _Pooling(Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, settings: Any) -> Any:
        pooled, indices = _pool(images, *settings)
        ctx.save_for_backward(images, indices)
        ctx.settings = settings
        return pooled

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        images, indices = ctx.saved_tensors
        arguments = (grad_output, images.detach(), indices, ctx.settings)
        return _PoolingBackward.apply(*arguments), None  # type: ignore[no-untyped-call]


class _PoolingBackward(Function):
    """The gradient by the images: each entry of grad_output is added where the largest value was."""

    @staticmethod
    def forward(ctx: Any, grad_output: Tensor, images: Tensor, indices: Tensor, settings: Any) -> Any:
        ctx.save_for_backward(indices)
        return _pool_backward(grad_output, images, *settings, indices)

    @staticmethod
    def backward(ctx: Any, d_images: Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        return _pick(d_images, indices), None, None, None


def _pick(images: Tensor, indices: Tensor) -> Tensor:
    """The values at these indices of each image; channels-last images are not copied to another layout."""
    if images.is_contiguous():
        return images.flatten(2).gather(2, indices.flatten(2)).view(indices.shape)
    last = indices.permute(0, 2, 3, 1)
    picked = images.permute(0, 2, 3, 1).flatten(1, 2).gather(1, last.flatten(1, 2))
    return picked.view(last.shape).permute(0, 3, 1, 2)
