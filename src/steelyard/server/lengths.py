"""Norms of updates: updates far longer than usual are rejected, long ones are clipped."""

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from steelyard.combining.base import scaled
from steelyard.types import ClientId, Stack

MIN_NORMS = 3  # fewer norms do not show which of them is unusual
RECENT_ROUNDS = 20  # whose median norms show what is usual
USUAL_NORM_FACTOR = 3.0  # times the usual norm: the limit for clip = "usual"
MAX_PRECISION_RATIO = 1e6  # of a precision to its median; larger ratios are cut off


def too_long(clients: Sequence[ClientId], norms: Tensor, usual: float, ratio: float) -> dict[ClientId, str]:
    """The reason for each client whose update is longer than `ratio` × the usual norm.

    Honest clients differ in length by the number of steps and by how well the model already fits their data,
    so the ratio is large.
    """
    return {
        client: f"sent an update of norm {norm:.3g}, {norm / usual:.3g} times the usual {usual:.3g} "
        f"(server.max_norm_ratio is {ratio:g})"
        for client, norm in zip(clients, norms.tolist(), strict=True)
        if norm > ratio * usual
    }


def ordered(norms: Tensor) -> list[float]:
    """Norms [J] as plain numbers, the shortest first: a few of them are faster than tensors."""
    numbers: list[float] = norms.sort().values.tolist()
    return numbers


def usual_norm(ordered: Sequence[float], medians: Tensor | None) -> float:
    """The usual norm: the median of this round or of the last rounds, whichever is smaller.

    Updates that are 0 do not count. Where too few norms are known, it is infinite.
    """
    moved = ordered[bisect_right(ordered, 0.0) :]
    now = moved[(len(moved) - 1) // 2] if len(moved) >= MIN_NORMS else math.inf
    recent = [] if medians is None else medians[-RECENT_ROUNDS:].tolist()
    before = statistics.median(recent) if len(recent) >= MIN_NORMS else math.inf
    return min(now, before)


def with_median(medians: Tensor | None, ordered: Sequence[float], limit: float = math.inf) -> Tensor | None:
    """The medians of the rounds so far with that of one more, at most `limit`; a median of 0 is left out."""
    median = min((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2, limit)
    if not median > 0:
        return medians
    new = torch.tensor([median], dtype=torch.float64)
    return new if medians is None else torch.cat([medians, new])


def clip_limit(norms: Tensor, clip: float | Literal["median", "usual"], medians: Tensor | None) -> float:
    """The largest norm that an update keeps; `medians` are those of the earlier rounds."""
    if isinstance(clip, float | int):
        return float(clip)
    if clip == "median":
        return float(norms.quantile(0.5))
    so_far = with_median(medians, ordered(norms))
    if so_far is None:  # no update has moved yet, so there is no usual norm
        return math.inf
    return USUAL_NORM_FACTOR * float(so_far.quantile(0.5))


def clip(stack: Stack, norms: Tensor, limit: float) -> Stack:
    """Scale updates whose norm exceeds `limit` down to it; directions stay."""
    return scaled(stack, clip_factors(norms, limit))


def clip_factors(norms: Tensor, limit: float) -> Tensor:
    """The factors up to 1 that bring norms down to a limit, [J]."""
    return (limit / norms.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)


def by_precision(means: Tensor, variances: Tensor) -> Tensor:
    """Scale each mean by max(r, 1/r), where r = median variance / its variance: how unusual its precision is.

    Posteriors are merged by precision, so a client that claims a tiny variance moves the model far, and a
    client that claims a huge one hides how far it is from the others. Both get longer. Coordinates without a
    variance stay as they are.
    """
    median = variances.median(dim=0).values
    smallest = torch.finfo(variances.dtype).tiny
    ratio = (median / variances.clamp(min=smallest)).clamp(1 / MAX_PRECISION_RATIO, MAX_PRECISION_RATIO)
    return means * torch.where(median > 0, torch.maximum(ratio, 1 / ratio), 1.0)
