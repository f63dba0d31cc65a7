"""Timing in turns: contenders run right after each other, so that a noisy machine hits all alike."""

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
    """Seconds of each, repetition by repetition; one more, before, is not timed."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(repetitions + 1):
        for name, work in contenders.items():
            elapsed = seconds(work)
            if repetition:
                taken[name].append(elapsed)
    return taken


def middle_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of ratios that are formed within a repetition."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def updates(clients: int, size: int) -> torch.Tensor:
    """N(0, 1) noise around a common part."""
    rows = torch.randn(clients, size, generator=generator(0, "updates"))
    return rows.add_(torch.randn(size, generator=generator(0, "common")))


def spoil(rows: torch.Tensor) -> torch.Tensor:
    """Some clients send ten times as much, in place: a second copy might not fit."""
    rows[: max(1, round(OUTLIERS * len(rows)))] *= 10
    return rows
