"""The small digits that come with scikit-learn (UCI Optical Recognition, Alpaydin and Kaynak): 8×8 grey."""

import numpy as np
import torch

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.data.store import Source

SOURCE = Source(
    name="digits",
    about="handwritten digits, 8×8 grey, 1 442 + 355, 10 classes",
    licence="CC BY 4.0 (UCI Machine Learning Repository)",
    bundled="scikit-learn",
)

TEST_EVERY = 5

# Of all pixels of the 1 442 training images, scaled to 0..1; the standard deviation divides by N.
MEAN, STD = 0.3052, 0.3760


def digits() -> Dataset:
    """The small digits of scikit-learn, 8×8 grey, 1 442 + 355 images of 10 classes; no download.

    No test set is published, so it is every fifth image of each class, the same for every seed.
    """
    from sklearn.datasets import load_digits

    levels, classes = load_digits(return_X_y=True)
    # Levels are 0..16; as bytes they are scaled like all other images.
    images = torch.from_numpy(np.rint(levels * (255 / 16)).astype(np.uint8)).view(-1, 1, 8, 8)
    labels = torch.from_numpy(classes.astype(np.int64))
    held_out = _rank_in_class(labels) % TEST_EVERY == TEST_EVERY - 1

    def part(chosen: torch.Tensor) -> Examples:
        return Examples(images[chosen], labels[chosen], torch.arange(int(chosen.sum())), (MEAN,), (STD,))

    return Dataset(SOURCE.name, part(~held_out), part(held_out), tuple("0123456789"))


def _rank_in_class(labels: torch.Tensor) -> torch.Tensor:
    """The number of earlier examples with the same label."""
    one_hot = torch.nn.functional.one_hot(labels)
    return (one_hot.cumsum(0) - 1)[torch.arange(len(labels)), labels]
