"""Times training steps on one thread. The steps take turns, and ratios are taken within a turn."""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

Step = Callable[[], object]


def show(
    about: str | None, corner: str, columns: Sequence[str], rows: Mapping[str, Callable[[], list[Step]]]
) -> None:
    """Print a Markdown table: milliseconds of each column's step, and its ratio to the first column."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--steps", type=int, default=3, help="steps of each column in a turn")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"| {corner} | " + " | ".join(f"{name}, ms" for name in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for name, make in rows.items():
        steps = make()
        turns = [[milliseconds(step, options.steps) for step in steps] for _ in range(options.turns + 2)][2:]
        times = [statistics.median(column) for column in zip(*turns, strict=True)]
        ratios = [statistics.median(turn[place] / turn[0] for turn in turns) for place in range(len(steps))]
        cells = [f"{times[0]:.2f}"]
        cells += [f"{ms:.2f} ({ratio:.2f} ×)" for ms, ratio in zip(times[1:], ratios[1:], strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def milliseconds(step: Step, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return 1000 * (time.perf_counter() - start) / steps
