"""Figure of a partition: class counts of each client, its number of rows, and sample images."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from steelyard.report.style import (
    BAR,
    DPI,
    FAINT,
    INK,
    distinct,
    label_angle,
    new_axes,
    new_figure,
    ramp,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Array = NDArray[Any]

SCALE, SKYLINE = 0.32, 0.2  # inches: the scale above the lower edge, the numbers of rows above their classes
MAX_NAMED_CLIENTS = 40  # with more, each client is a column without a name


def draw_split(
    counts: Tensor,
    class_names: Sequence[str],
    client_names: Sequence[str],
    title: str,
    path: Path,
    thumbnails: Tensor | None = None,
) -> None:
    """Draw class counts [clients, classes] as PNG, PDF or SVG.

    `thumbnails` [clients, k, C, H, W] in [0, 1] are drawn beside the counts of at most 40 clients.
    """
    table = counts.cpu().numpy()
    names = distinct(class_names, 18)
    if len(table) <= MAX_NAMED_CLIENTS:
        images = None if thumbnails is None else thumbnails.cpu().numpy()
        figure = _clients_as_rows(table, names, distinct(client_names, 24), title, images)
    else:
        figure = _clients_as_columns(table, names, title)
    save(figure, path)


def _clients_as_rows(
    table: Array, class_names: list[str], client_names: list[str], title: str, images: Array | None
) -> "Figure":
    """One row per client: class counts, a bar for its number of rows, sample images."""
    clients, classes = table.shape
    row = 0.3 if images is None else 0.42
    grid_height, grid_width = row * clients, float(np.clip(0.5 * classes, 3.0, 10.0))
    left, bottom = 0.35 + 0.075 * max(map(len, client_names)), 0.62
    bars_left = left + grid_width + 0.2
    images_left = bars_left + 1.8
    shown = 0 if images is None else min(images.shape[1], 8)
    angle = label_angle(class_names, grid_width / classes)
    top = 0.95 + math.sin(math.radians(angle)) * 0.075 * max(map(len, class_names))
    width = images_left + (row * shown + 0.3 if shown else 0.0)
    figure = new_figure(width, bottom + grid_height + top, title, _summary(table), left)
    grid = new_axes(figure, left, bottom, grid_width, grid_height)
    mesh = _draw_counts(grid, table, grid_width / classes)
    _draw_scale(figure, mesh, new_axes(figure, left, SCALE, 1.2, 0.1), upright=False)
    grid.set_yticks(np.arange(clients) + 0.5, labels=client_names, parse_math=False)
    grid.xaxis.tick_top()
    places = _label_places(classes, grid_width)
    align = "left" if angle == 45 else "center"
    style: dict[str, Any] = {"parse_math": False, "rotation": angle, "ha": align}
    grid.set_xticks([i + 0.5 for i in places], labels=[class_names[i] for i in places], **style)
    _draw_sizes(new_axes(figure, bars_left, bottom, 1.3, grid_height), table.sum(axis=1))
    if images is not None:
        _draw_images(new_axes(figure, images_left, bottom, row * shown, grid_height), images[:, :shown])
    return figure


def _clients_as_columns(table: Array, class_names: list[str], title: str) -> "Figure":
    """One column per client, sorted by class mix: class shares below, number of rows above."""
    clients, classes = table.shape
    sizes = table.sum(axis=1)
    shares = table / np.maximum(sizes, 1)[:, None]
    order = _order_by_classes(shares)
    # With more clients than pixels, neighbours are averaged, so that every client shows.
    columns = np.stack([part.mean(axis=0) for part in np.array_split(shares[order], min(clients, 10 * DPI))])
    left, bottom = 0.35 + 0.075 * max(map(len, [*class_names, f"{sizes.max():,}"])), 0.5
    grid_height = float(np.clip(0.3 * classes, 2.4, 7.0))
    figure = new_figure(left + 10.9, bottom + grid_height + 2.1, title, _summary(table), left)
    grid = new_axes(figure, left, bottom, 10.0, grid_height)
    image = grid.imshow(columns.T, cmap=ramp(), aspect="auto", vmin=0, interpolation="nearest")
    places = _label_places(classes, grid_height)
    grid.set_yticks(places, labels=[class_names[i] for i in places], parse_math=False)
    grid.set_xticks([])
    grid.set_xlabel(f"{clients:,} clients, ordered by their most frequent class", color=FAINT, fontsize=9)
    _draw_scale(figure, image, new_axes(figure, left + 10.15, bottom, 0.14, grid_height), upright=True)
    _draw_skyline(new_axes(figure, left, bottom + grid_height + SKYLINE, 10.0, 0.9), sizes[order])
    return figure


def _order_by_classes(shares: Array) -> Array:
    """Sorted by most frequent class, then by its share (largest first), then by second class."""
    first_two = np.argsort(-shares, axis=1, kind="stable")[:, :2]
    return np.lexsort((first_two[:, -1], -shares.max(axis=1), first_two[:, 0]))


def _draw_counts(axes: "Axes", table: Array, cell_width: float) -> "QuadMesh":
    """Numbers are counts; the shade is the class's share of the client's rows, as with many clients."""
    shares = table / np.maximum(table.sum(axis=1), 1)[:, None]
    peak, darkest = max(int(table.max()), 1), max(float(shares.max()), 1e-9)
    gap = 1.5 if cell_width > 0.25 else 0.25
    mesh = axes.pcolormesh(shares, cmap=ramp(), vmin=0, vmax=darkest, edgecolors="white", linewidth=gap)
    axes.invert_yaxis()
    if cell_width < 0.09 * len(f"{peak:,}"):  # numbers would overlap
        return mesh
    for client, label in np.argwhere(table):
        count = table[client, label]
        color = "white" if shares[client, label] > 0.55 * darkest else INK
        axes.text(label + 0.5, client + 0.5, f"{count:,}", ha="center", va="center", fontsize=8, color=color)
    return mesh


def _draw_sizes(axes: "Axes", sizes: Array) -> None:
    largest = max(int(sizes.max()), 1)
    axes.barh(range(len(sizes)), sizes, height=0.5, color=BAR)
    for client, size in enumerate(sizes):
        axes.text(size + 0.05 * largest, client, f"{size:,}", va="center", fontsize=8, color=INK)
    axes.set(xlim=(0, largest * 1.05), ylim=(len(sizes) - 0.5, -0.5), xticks=[], yticks=[])
    axes.text(0, -0.72, "rows", fontsize=9, color=FAINT)


def _draw_skyline(axes: "Axes", sizes: Array) -> None:
    largest = max(int(sizes.max()), 1)
    axes.stairs(sizes, np.arange(len(sizes) + 1), fill=True, color=BAR)
    axes.set(xlim=(0, len(sizes)), ylim=(0, largest), xticks=[])
    axes.set_yticks([0, largest], labels=["0", f"{largest:,}"])
    axes.text(0, largest * 1.06, "rows", fontsize=9, color=FAINT)


def _draw_images(axes: "Axes", images: Array) -> None:
    for client, samples in enumerate(images):
        for column, sample in enumerate(samples):
            pixels = sample.transpose(1, 2, 0) if len(sample) == 3 else sample[0]
            extent = (column + 0.04, column + 0.96, client + 0.46, client - 0.46)
            axes.imshow(pixels.clip(0, 1), cmap="gray", vmin=0, vmax=1, extent=extent, aspect="auto")
    axes.set(xlim=(0, images.shape[1]), ylim=(len(images) - 0.5, -0.5), xticks=[], yticks=[])
    axes.text(0.04, -0.72, "sample images", fontsize=9, color=FAINT)


def _draw_scale(figure: "Figure", shares: "AxesImage | QuadMesh", axes: "Axes", upright: bool) -> None:
    """What the shades are: upright beside the columns of many clients, or flat below the rows of a few."""
    bar = figure.colorbar(
        shares,
        cax=axes,
        orientation="vertical" if upright else "horizontal",
        ticks=None if upright else [0, shares.get_clim()[1]],
        format=lambda share, _: f"{100 * share:.2g}%",
    )
    bar.outline.set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=FAINT)
    if upright:
        axes.set_title("share", fontsize=8, color=FAINT, loc="left")
    else:
        text = "shade: share of the client's rows"
        axes.text(1.08, 0.5, text, transform=axes.transAxes, va="center", fontsize=8, color=FAINT)


def _label_places(count: int, length: float) -> range:
    """Positions of as many evenly spaced labels as fit into `length` inches."""
    return range(0, count, math.ceil(0.15 * count / length))


def _summary(table: Array) -> str:
    sizes = table.sum(axis=1)
    least, most = sizes.min(), sizes.max()
    span = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    seen = round(float((table > 0).sum(axis=1).mean()), 1)
    classes = f"{seen:g} of {table.shape[1]} classes per client on average"
    return f"{len(table):,} clients · {sizes.sum():,} rows ({span} each) · {classes}"
