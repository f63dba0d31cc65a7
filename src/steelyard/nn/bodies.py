"""Small convolutional networks of three families: a body that ends in an embedding, and one linear head.

All have an embedding of the same length, so that clients with different bodies can share their heads (CHFL).
The default is group normalisation, because the running statistics of batch normalisation do not carry over
from one client's data to another's.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from torch import Tensor, nn

from steelyard.errors import InputError, unknown

Norm = Literal["group", "batch"]
GROUPS = 8
MIN_IMAGE_SIDE = 16
POOLED_SIDE = 2  # average pooling to 2×2, not 1×1: the position helps to tell digits apart


def mobilenet(
    input_shape: tuple[int, ...], num_classes: int, *, embed: int = 64, width: int = 8, norm: Norm = "group"
) -> nn.Module:
    """Inverted residuals with depthwise convolutions and hard swish: a small network like MobileNetV3."""
    _check("mobilenet", input_shape, embed, width, norm)
    wide, wider = width * 3 // 2, width * 2
    body = (
        *_convolution(input_shape[0], width, norm, stride=2),
        nn.Hardswish(),
        _InvertedResidual(width, wide, norm, stride=2),
        _InvertedResidual(wide, wide, norm),
        _InvertedResidual(wide, wider, norm, stride=2),
        _InvertedResidual(wider, wider, norm),
    )
    return _with_head(body, wider, embed, num_classes)


def resnet(
    input_shape: tuple[int, ...], num_classes: int, *, embed: int = 64, width: int = 8, norm: Norm = "group"
) -> nn.Module:
    """Three stages of one basic block each (He et al., 2016); the first convolution halves the image."""
    _check("resnet", input_shape, embed, width, norm)
    body = (
        *_convolution(input_shape[0], width, norm, stride=2),
        nn.ReLU(),
        _BasicBlock(width, width, norm),
        _BasicBlock(width, 2 * width, norm, stride=2),
        _BasicBlock(2 * width, 3 * width, norm, stride=2),
    )
    return _with_head(body, 3 * width, embed, num_classes)


def vgg(
    input_shape: tuple[int, ...], num_classes: int, *, embed: int = 64, width: int = 8, norm: Norm = "group"
) -> nn.Module:
    """Three stages of one, one and two 3×3 convolutions with max pooling (Simonyan and Zisserman, 2015)."""
    _check("vgg", input_shape, embed, width, norm)
    wide, wider = width * 3 // 2, width * 2
    stages = ((input_shape[0], width), (width, wide), (wide, wider, wider))
    body = [module for channels in stages for module in _stage(channels, norm)]
    return _with_head(body, wider, embed, num_classes)


class _InvertedResidual(nn.Module):
    """1×1 expansion to 3× the channels, depthwise 3×3, linear 1×1 projection (MobileNetV2 and V3)."""

    def __init__(self, channels: int, filters: int, norm: Norm, stride: int = 1) -> None:
        super().__init__()
        wide = 3 * channels
        self.block = nn.Sequential(
            *_convolution(channels, wide, norm, kernel=1),
            nn.Hardswish(),
            *_convolution(wide, wide, norm, stride=stride, groups=wide),
            nn.Hardswish(),
            *_convolution(wide, filters, norm, kernel=1),
        )
        self.adds = stride == 1 and channels == filters

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.block(inputs)
        return inputs + outputs if self.adds else outputs


class _BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shapes differ."""

    def __init__(self, channels: int, filters: int, norm: Norm, stride: int = 1) -> None:
        super().__init__()
        self.block = nn.Sequential(
            *_convolution(channels, filters, norm, stride=stride),
            nn.ReLU(),
            *_convolution(filters, filters, norm),
        )
        same = stride == 1 and channels == filters
        self.shortcut = nn.Sequential(
            *(() if same else _convolution(channels, filters, norm, kernel=1, stride=stride))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.block(inputs) + self.shortcut(inputs)
        return outputs.relu()


def _stage(channels: Sequence[int], norm: Norm) -> list[nn.Module]:
    """3×3 convolutions from each number of channels to the next, with 2×2 max pooling after the last.

    The pooling comes before the last normalisation and ReLU, which then process a quarter of the values.
    """
    steps = [(*_convolution(*pair, norm), nn.ReLU()) for pair in itertools.pairwise(channels)]
    *modules, normalisation, relu = itertools.chain(*steps)
    return [*modules, nn.MaxPool2d(2), normalisation, relu]


def _convolution(
    channels: int, filters: int, norm: Norm, *, kernel: int = 3, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, nn.Module]:
    """A convolution without bias, padded to keep the image size (at stride 1), and a normalisation."""
    convolution = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False)
    return convolution, _normalisation(filters, norm)


def _normalisation(channels: int, norm: Norm) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(math.gcd(GROUPS, channels), channels)


def _with_head(body: Iterable[nn.Module], channels: int, embed: int, num_classes: int) -> nn.Sequential:
    """A model of two modules: the body up to the embedding, and the head."""
    pooling = nn.AdaptiveAvgPool2d(POOLED_SIDE), nn.Flatten()
    embedding = nn.Sequential(*body, *pooling, nn.Linear(channels * POOLED_SIDE**2, embed), nn.ReLU())
    return nn.Sequential(embedding, nn.Linear(embed, num_classes))


def _check(name: str, input_shape: tuple[int, ...], embed: int, width: int, norm: str) -> None:
    if len(input_shape) != 3 or min(input_shape[1:]) < MIN_IMAGE_SIDE:
        raise InputError(
            f"{name} needs images of at least {MIN_IMAGE_SIDE}×{MIN_IMAGE_SIDE}, not inputs of shape "
            f"{input_shape}; try mlp."
        )
    if min(embed, width) < 1:
        raise InputError(f"{name}: embed and width must be at least 1, not {embed} and {width}.")
    if norm not in get_args(Norm):
        raise unknown("normalisation", norm, get_args(Norm), of=name)
