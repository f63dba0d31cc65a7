"""Class counts of the clients of a spec, and the figure that shows them."""

from pathlib import Path

import torch
from torch import Tensor

from steelyard import components
from steelyard.data import Client, Dataset, Examples
from steelyard.data.heterogeneous import HeterogeneousDataset
from steelyard.errors import InputError
from steelyard.report.split_figure import draw_split
from steelyard.runs.summary import describe_choice
from steelyard.specs.building import deal_all
from steelyard.specs.schema import Spec

THUMBNAILS = 6


def draw_spec(spec: Spec, path: Path) -> dict[str, list[int]]:
    """Draw how many examples of each class every client has; returns {client: count of each class}."""
    dataset: Dataset | HeterogeneousDataset = components.build("datasets", spec.data.dataset)
    if not dataset.class_names:
        raise InputError(f"the targets of {dataset.name} are numbers: there are no classes to draw.")
    clients = list(deal_all(spec, dataset).values())
    counts = torch.stack(
        [torch.bincount(client.train.labels, minlength=dataset.num_classes) for client in clients]
    )
    names = [client.id for client in clients]
    title = f"{dataset.name}, {describe_choice(spec.data.partition)}"
    if spec.data.shift is not None:
        title += f", {describe_choice(spec.data.shift)}"
    draw_split(
        counts, dataset.class_names, names, title, path, _thumbnails(clients) if spec.data.shift else None
    )
    return dict(zip(names, counts.tolist(), strict=True))


def _thumbnails(clients: list[Client]) -> Tensor:
    """The first images of each client, [clients, k, C, H, W] in [0, 1]; zeros where a client has fewer."""
    shape = clients[0].train.input_shape or ()
    pictures = torch.zeros(len(clients), THUMBNAILS, *shape)
    for client, row in zip(clients, pictures, strict=True):
        assert isinstance(client.train, Examples)
        images = client.train.inputs[client.train.rows[:THUMBNAILS]]
        row[: len(images)] = images.float() / 255
    return pictures
