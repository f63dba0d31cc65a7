"""The small digits of scikit-learn as a table of 64 pixels, of which every client sees some."""

import torch

from steelyard.data.digits import SOURCE as DIGITS
from steelyard.data.heterogeneous import HeterogeneousDataset
from steelyard.data.store import Source
from steelyard.data.tables import Column, Table
from steelyard.data.tabular import Sliced

SOURCE = Source(
    name="digit-pixels",
    about="the small digits as a table, 1 797 × 64, 10 classes",
    licence=DIGITS.licence,
    bundled="scikit-learn",
)


def digit_pixels(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """Which digit is it? 1,797 images of 64 pixels; each client sees a `share` of them; no download."""
    from sklearn.datasets import load_digits

    levels, classes = load_digits(return_X_y=True)
    columns = [
        Column(f"pixel-{place // 8}-{place % 8}", torch.from_numpy(values))
        for place, values in enumerate(levels.T.copy())
    ]
    table = Table(SOURCE.name, tuple(columns), torch.from_numpy(classes).long(), tuple("0123456789"))
    return Sliced(table.name, table.class_names, table, share, test)
