"""Images with the channels of a pixel together in memory, or each channel by itself (contiguous).

    python benchmarks/memory_format.py --turns 15

A training step on 64 images and a prediction of 256, one thread, in turns. "plain" is the model as it is,
with torch's max pooling; the others are working copies as clients train in. `auto` marks what the rule of
`training.memory_format` takes.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from turns import Step, show

from steelyard.client.memory_format import memory_format_of
from steelyard.client.working_model import working_copy_of
from steelyard.nn import zoo
from steelyard.task import FittedTask

SMALL, LARGE = (1, 28, 28), (3, 32, 32)
MODELS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "light-cnn 28×28": (zoo.light_cnn, SMALL, {}),
    "hybrid-cnn 28×28": (zoo.hybrid_cnn, SMALL, {}),
    "hybrid-cnn 32×32": (zoo.hybrid_cnn, LARGE, {}),
    "vgg, groups": (zoo.vgg, LARGE, {}),
    "vgg, batches": (zoo.vgg, LARGE, {"norm": "batch"}),
    "vgg, groups, width 32": (zoo.vgg, LARGE, {"width": 32}),
    "resnet, groups": (zoo.resnet, LARGE, {}),
    "resnet, batches": (zoo.resnet, LARGE, {"norm": "batch"}),
    "resnet, groups, width 32": (zoo.resnet, LARGE, {"width": 32}),
    "mobilenet, groups": (zoo.mobilenet, LARGE, {}),
    "mobilenet, batches": (zoo.mobilenet, LARGE, {"norm": "batch"}),
    "mobilenet, groups, width 32": (zoo.mobilenet, LARGE, {"width": 32}),
}
FORMATS = (torch.contiguous_format, torch.channels_last)


def train(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    F.cross_entropy(model(inputs), targets).backward()


@torch.inference_mode()
def predict(model: nn.Module, inputs: Tensor) -> Tensor:
    return model(inputs)


def steps(name: str, training: bool) -> list[Step]:
    make, shape, settings = MODELS[name]
    model = make(shape, 10, **settings)
    count = 64 if training else 256
    inputs, targets = torch.rand(count, *shape), torch.randint(0, 10, (count,))
    models = [copy.deepcopy(model), *(working_copy_of(model, format).model for format in FORMATS)]
    if training:
        return [partial(train, each.train(), inputs, targets) for each in models]
    return [partial(predict, each.eval(), inputs) for each in models]


def marked(name: str, training: bool) -> str:
    """The name of a row, which says what the rule takes."""
    make, shape, settings = MODELS[name]
    found = memory_format_of(make(shape, 10, **settings), FittedTask(), "auto")
    order = "channels last" if found == torch.channels_last else "contiguous"
    return f"{name}, {'training' if training else 'predicting'} (auto: {order})"


def main() -> None:
    rows = {
        marked(name, training): partial(steps, name, training)
        for name in MODELS
        for training in (True, False)
    }
    show(__doc__, "", ("plain", "contiguous", "channels last"), rows)


if __name__ == "__main__":
    main()
