"""Timing in turns: contenders run right after each other, so that other load slows all of them equally."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from steelyard.seeds import generator

OUTLIERS = 0.1  # the share of clients that send ten times the noise


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(contenders: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each contender in each repetition, after one that is not timed."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(repetitions + 1):
        for name, work in contenders.items():
            elapsed = seconds(work)
            if repetition:
                times[name].append(elapsed)
    return times


def middle_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios within repetitions."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def updates(clients: int, size: int) -> torch.Tensor:
    """N(0, 1) noise around a common part."""
    rows = torch.randn(clients, size, generator=generator(0, "updates"))
    return rows.add_(torch.randn(size, generator=generator(0, "common")))


def spoil(rows: torch.Tensor) -> torch.Tensor:
    """Make 10 % of the clients outliers: their updates × 10, in place because a copy might not fit."""
    rows[: max(1, round(OUTLIERS * len(rows)))] *= 10
    return rows
