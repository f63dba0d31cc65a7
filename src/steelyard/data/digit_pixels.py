"""The small digits of scikit-learn as a table with a column per pixel; every client has some columns."""

import torch

from steelyard.data.digits import SOURCE as DIGITS
from steelyard.data.heterogeneous import HeterogeneousDataset
from steelyard.data.store import Source
from steelyard.data.tables import Column, Table
from steelyard.data.tabular import SlicedTable

SOURCE = Source(
    name="digit-pixels",
    about="the small digits as a table, 1 797 × 64, 10 classes",
    licence=DIGITS.licence,
    bundled="scikit-learn",
)


def digit_pixels(share: float = 0.5, test: float = 0.25) -> HeterogeneousDataset:
    """The small digits as a table, 1 797 rows × 64 pixels; each client has a `share` of the pixels."""
    from sklearn.datasets import load_digits

    levels, classes = load_digits(return_X_y=True)
    columns = [
        Column(f"pixel-{place // 8}-{place % 8}", torch.from_numpy(values))
        for place, values in enumerate(levels.T.copy())
    ]
    table = Table(SOURCE.name, tuple(columns), torch.from_numpy(classes).long(), tuple("0123456789"))
    return SlicedTable(table.name, table.class_names, table, share, test)
