"""A part of MNIST-M (Ganin and Lempitsky, 2015): digits of MNIST blended into patches of photographs.

No package or server offers this part. It is one file, made from the authors' PNG release with numpy's
`savez_compressed`: `train_x` and `train_y` are the first 3 500 training images and labels, `test_x` and
`test_y` the first 700 test images and labels, in that order. Images are bytes [N, 32, 32, 3], labels bytes
[N].
"""

import io

import numpy as np
import torch

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.data.store import Source, data_folder, load, where
from steelyard.errors import InputError

FILE = "mnistm-SUBSET-first3500train-first700test-32x32.npz"
SOURCE = Source(
    name="mnist-m",
    about="digits on photographs, 32×32 colour, the first 3 500 + 700, 10 classes; no public package has it",
    licence="none stated; made of MNIST (CC BY-SA 3.0) and BSDS500 (non-commercial research)",
    files={FILE: "9e2952eb66c7f7cf9eb38aac33e70f3cbedfd2ccf51be8a57eb8cd7becbee921"},
)

# For red, green and blue of the 3 500 training images, scaled to 0..1; the standard deviation divides by N.
MEAN, STD = (0.4616, 0.4654, 0.4113), (0.2482, 0.2327, 0.2555)


def mnist_m() -> Dataset:
    """Handwritten digits on photographs, 32×32 colour, 3 500 + 700 images of 10 classes, from MNIST-M."""
    if where(SOURCE) is None:  # the store's own message advises to fetch it
        raise InputError(
            f"the data set mnist-m cannot be fetched, because no public package has it: put {FILE} into "
            f"$STEELYARD_DATA/mnist-m/ (STEELYARD_DATA is {data_folder() or 'not set'}). The docstring of "
            "steelyard.data.mnist_m says how to make the file from the authors' release."
        )
    with np.load(io.BytesIO(load(SOURCE)[FILE]), allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}

    def part(prefix: str) -> Examples:
        images = arrays[f"{prefix}_x"].permute(0, 3, 1, 2).contiguous()
        labels = arrays[f"{prefix}_y"].long()
        return Examples(images, labels, torch.arange(len(labels)), MEAN, STD)

    return Dataset(SOURCE.name, part("train"), part("test"), tuple("0123456789"))
