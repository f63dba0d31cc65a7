"""Time and memory of images stored as bytes and converted per batch, or stored as floats.

    python benchmarks/data_format.py

One epoch of one client (400 images, batches of 64, light-cnn and logistic regression on MNIST-sized data).
"""

import statistics
import time

import torch
from torch import Tensor, nn

from steelyard.data import Examples
from steelyard.nn.zoo import light_cnn, logistic

ROWS, BATCH, IMAGES = 400, 64, 60_000


def epoch(model: nn.Module | None, data: Examples, order: Tensor) -> None:
    for positions in torch.split(order, BATCH):
        inputs, targets = data.batch(positions)
        if model is not None:
            nn.functional.cross_entropy(model(inputs), targets).backward()


def timed(model: nn.Module | None, data: Examples, order: Tensor) -> float:
    """Median milliseconds of an epoch."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        epoch(model, data, order)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    pixels = torch.randint(0, 256, (IMAGES, 1, 28, 28), dtype=torch.uint8)
    labels, rows = torch.randint(0, 10, (IMAGES,)), torch.randperm(IMAGES)[:ROWS]
    as_bytes = Examples(pixels, labels, rows, (0.1307,), (0.3081,))
    as_floats = Examples((pixels.float() / 255 - 0.1307) / 0.3081, labels, rows)
    order = torch.randperm(ROWS)
    shape = (1, 28, 28)
    models = {"batches only": None, "logistic": logistic(shape, 10), "light-cnn": light_cnn(shape, 10)}
    print("| one client's epoch | bytes, ms | floats, ms | bytes cost |\n|---|---|---|---|")
    for name, model in models.items():
        if model is not None:
            model.to(memory_format=torch.channels_last)
        pairs = [(timed(model, as_bytes, order), timed(model, as_floats, order)) for _ in range(9)]
        slow, fast = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| {name} | {slow:.3f} | {fast:.3f} | {slow / fast - 1:+.1%} |")
    sizes = pixels.nbytes / 1e6, as_floats.inputs.nbytes / 1e6
    print(f"\nMNIST in memory: {sizes[0]:.0f} MB as bytes, {sizes[1]:.0f} MB as floats")


if __name__ == "__main__":
    main()
