"""Time of an optimiser step on a small model: torch.optim's classes and their functional form.

python benchmarks/optimizer_step.py
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from steelyard.client.optimizers import make_step
from steelyard.nn.zoo import mlp
from steelyard.settings import Training


def microseconds(step: Callable[[], object], repeats: int = 2000) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return 1e6 * (time.perf_counter() - start) / repeats


def main() -> None:
    torch.set_num_threads(1)
    model = mlp((64,), 10)
    parameters = list(model.parameters())
    loss = F.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
    loss.backward()
    peers = {
        "SGD": (torch.optim.SGD(parameters, lr=1e-3, momentum=0.9), Training(lr=1e-3, momentum=0.9)),
        "Adam": (torch.optim.Adam(parameters, lr=1e-3), Training(optimizer="adam", lr=1e-3)),
    }
    print("| optimiser | torch.optim class, µs | functional and fused, µs |\n|---|---|---|")
    for name, (plain, training) in peers.items():
        fused = partial(make_step(parameters, training), 1.0, lambda: loss)
        pairs = [(microseconds(plain.step), microseconds(fused)) for _ in range(5)]
        slow, fast = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| {name} | {slow:.0f} | {fast:.0f} |")


if __name__ == "__main__":
    main()
