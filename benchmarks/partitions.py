"""Time to partition 60,000 labels among 1,000 clients.

python benchmarks/partitions.py
"""

import statistics
import time

import torch

from steelyard import components
from steelyard.seeds import generator

ROWS, CLIENTS = 60_000, 1_000
SETTINGS = {"shards": {"shards": 2_000}}  # two for each client


def main() -> None:
    labels = torch.randint(0, 10, (ROWS,), generator=generator(0, "labels"))
    groups = torch.randint(0, 1_500, (ROWS,), generator=generator(0, "groups"))
    print("| partition | ms, median of 5 | rows dealt |\n|---|---|---|")
    for name in components.names("partitions"):
        choice = {"name": name, **SETTINGS.get(name, {})}
        times = []
        for seed in range(5):
            start = time.perf_counter()
            parts = components.build(
                "partitions", choice, labels=labels, groups=groups, clients=CLIENTS, generator=generator(seed)
            )
            times.append(1000 * (time.perf_counter() - start))
        assert len(parts) == CLIENTS
        print(f"| `{name}` | {statistics.median(times):.0f} | {sum(map(len, parts)):,} |")


if __name__ == "__main__":
    main()
