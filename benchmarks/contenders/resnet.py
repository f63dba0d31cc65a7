"""ResNet-18 (He et al., 2016) in torchvision's layout, with group normalisation.

Batch normalisation keeps running statistics, which frameworks merge differently.
"""

from torch import Tensor, nn

GROUPS = 8
STAGES = (64, 128, 256, 512)  # channels


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shapes differ."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            *convolution(channels, filters, 3, stride), nn.ReLU(), *convolution(filters, filters, 3, 1)
        )
        same = stride == 1 and channels == filters
        self.shortcut = nn.Sequential(*(() if same else convolution(channels, filters, 1, stride)))

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.block(inputs) + self.shortcut(inputs)).relu()


def convolution(channels: int, filters: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    padded = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
    return padded, nn.GroupNorm(GROUPS, filters)


def resnet18(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    stem = *convolution(input_shape[0], STAGES[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    blocks, channels = [], STAGES[0]
    for filters in STAGES:
        blocks += [Block(channels, filters, 1 if filters == channels else 2), Block(filters, filters, 1)]
        channels = filters
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)
    return nn.Sequential(*stem, *blocks, *head)
