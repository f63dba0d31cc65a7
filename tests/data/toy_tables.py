"""Small columns and tables, and what clients hold of them, that the tests of tables share."""

import torch
from torch import Tensor

from steelyard.data.clients import Client
from steelyard.data.tables import Column, Table
from steelyard.seeds import generator

NAN = float("nan")


def numbers(*values: float, name: str = "size") -> Column:
    return Column(name, torch.tensor(values, dtype=torch.float64))


def codes(*values: int, name: str = "hue") -> Column:
    return Column(name, torch.tensor(values), ("red", "green", "blue"))


def toy(rows: int = 60, classes: int = 2) -> Table:
    """Six columns, some with gaps, and classes of unequal sizes."""
    draw = generator(0, "toy")
    sizes = torch.randn(4, rows, dtype=torch.float64, generator=draw) * 5 + 3
    sizes[0, ::7] = NAN
    hues = torch.randint(-1, 3, (2, rows), generator=draw)
    columns = [Column(f"size-{place}", values) for place, values in enumerate(sizes)]
    columns += [Column(f"hue-{place}", values, ("red", "green", "blue")) for place, values in enumerate(hues)]
    labels = (torch.rand(rows, generator=draw) ** 2 * classes).long()
    return Table("toy", tuple(columns), labels, tuple("abcdef"[:classes]))


def data(client: Client) -> list[Tensor]:
    train, test = client.train, client.test
    assert test is not None
    return [*train.span(0, len(train)), *test.span(0, len(test))]
