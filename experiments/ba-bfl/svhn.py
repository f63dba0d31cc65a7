"""A subset of Street View House Numbers (Netzer et al., 2011): 5,000 of its test images.

The file is read from `$STEELYARD_DATA/svhn`. The first 4,000 images are for training, the rest for testing.
"""

import os
from pathlib import Path

import numpy as np
import torch

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.errors import InputError

FILE = "svhn/svhn-SUBSET-test-first5000-reconstructed-32x32.npz"
TRAINED = 4000


def is_available() -> bool:
    return (Path(os.environ.get("STEELYARD_DATA", "")) / FILE).is_file()


def svhn_subset() -> Dataset:
    """House numbers, 32×32 colour, 4,000 + 1,000 images of 10 classes."""
    if not is_available():
        raise InputError(f"there is no {FILE}: set STEELYARD_DATA to the folder that has it.")
    with np.load(Path(os.environ["STEELYARD_DATA"]) / FILE, allow_pickle=False) as file:
        images = torch.from_numpy(file["x"].transpose(0, 3, 1, 2).copy())
        labels = torch.from_numpy(file["y"].astype(np.int64))
    shares = images[:TRAINED].double().div(255)
    mean, std = shares.mean(dim=(0, 2, 3)).tolist(), shares.std(dim=(0, 2, 3)).tolist()
    parts = torch.split(torch.arange(len(images)), TRAINED)
    train, test = (Examples(images, labels, rows, tuple(mean), tuple(std)) for rows in parts)
    return Dataset("svhn-subset", train, test, tuple(str(digit) for digit in range(10)))
