"""A small ResNet of your own on digits that are images of bytes, at five schools of unequal size.

python examples/own_resnet.py
"""

import itertools

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import steelyard as sy


class Block(nn.Module):
    """Two convolutions, and the input added to what they return."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.second(self.first(x)))


class ResNet(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), Block(16, 16, 1), Block(16, 32, 2))
        self.head = nn.Linear(32, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean(dim=(2, 3)))


digits = load_digits()
images = (digits.images * 255 / 16).astype("uint8")[:, None]  # [N, 1, 8, 8]
x_train, x_test, y_train, y_test = train_test_split(images, digits.target, test_size=0.3, random_state=0)

# Bytes reach the model as floats from 0 to 255, or scaled as in torchvision if mean and std are given.
scaling = {"mean": 0.3, "std": 0.37}
ends = [0, 100, 250, 450, 750, 1257]
schools = {
    f"school-{number}": sy.examples(x_train[start:stop], y_train[start:stop], **scaling)
    for number, (start, stop) in enumerate(itertools.pairwise(ends))
}

torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
federation = sy.Federation(
    schools,
    ResNet(),
    sy.Algorithm(training={"lr": 0.05, "momentum": 0.9}),
    test=sy.examples(x_test, y_test, **scaling),
    rounds=6,
)
result = federation.run()

for row in result.history:
    print(f"round {row['round']}  accuracy {row['accuracy']:.3f}  training loss {row['loss']:.3f}")
print(f"test accuracy {result.accuracy:.3f} with {sum(p.numel() for p in result.model.parameters())} weights")
