"""What happens to replies before they are weighed: unusable ones are rejected, long ones are clipped."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from steelyard.types import ClientId, Message, Reply, Stack

MAX_MAGNITUDE = 1e30  # larger finite values would overflow float32 when they are summed
MAX_PRECISION_RATIO = 1e6  # of a precision to its median; larger ratios are cut off
USUAL_NORM_FACTOR = 3.0  # times the usual norm: the limit for clip = "usual"


def screen(
    replies: Sequence[Reply], invited: Sequence[ClientId], like: Message, max_examples: int
) -> tuple[list[Reply], dict[ClientId, str]]:
    """The usable replies in the order of client ids, and the reason for each rejected client."""
    by_client: dict[ClientId, Reply] = {}
    rejected: dict[ClientId, str] = {}
    expected = set(invited)
    for reply in replies:
        if reply.client not in expected:
            rejected[reply.client] = "was not invited to this round"
        elif reply.client in by_client:
            rejected[reply.client] = "sent more than one reply"
        else:
            by_client[reply.client] = reply
            if reason := _fault(reply, like, max_examples):
                rejected[reply.client] = reason
    for client in invited:
        if client not in by_client:
            rejected[client] = "sent no reply"
    return [by_client[client] for client in sorted(by_client) if client not in rejected], rejected


def _fault(reply: Reply, like: Message, max_examples: int) -> str | None:
    """The reason to reject a reply, if there is one."""
    if [slot is None for slot in reply.message] != [slot is None for slot in like]:
        return f"sent {sorted(reply.message.slots)} where {sorted(like.slots)} was asked for"
    for slot, given, wanted in zip(like._fields, reply.message, like, strict=True):
        if wanted is None:
            continue
        if not isinstance(given, Tensor) or given.layout != wanted.layout or given.device != wanted.device:
            return f"sent a {slot} that is not a plain tensor"
        if given.shape != wanted.shape:
            return f"sent a {slot} of shape {tuple(given.shape)}, not {tuple(wanted.shape)}"
        if given.dtype != wanted.dtype:
            return f"sent a {slot} of {given.dtype}, not {wanted.dtype}"
        least, most = torch.aminmax(given)
        if not (float(least) >= -MAX_MAGNITUDE and float(most) <= MAX_MAGNITUDE):
            return f"sent a {slot} that is not finite, or beyond {MAX_MAGNITUDE:g}"
    if reply.message.variance is not None and bool((reply.message.variance < 0).any()):
        return "sent a negative variance"
    count = reply.num_examples
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= max_examples:
        return f"claims {count!r} examples (1 to {max_examples:,} are believed)"
    return None


def norm_limit(
    norms: Tensor, clip: float | Literal["median", "usual"], before: Tensor | None
) -> tuple[float, Tensor | None]:
    """The limit on the norm of an update and, for "usual", the median norms of the rounds so far."""
    if isinstance(clip, float | int):
        return float(clip), None
    median = norms.quantile(0.5)
    if clip == "median":
        return float(median), None
    medians = median.unsqueeze(0) if before is None else torch.cat([before, median.unsqueeze(0)])
    limit = USUAL_NORM_FACTOR * medians.quantile(0.5)
    if not limit > 0:  # no update has moved yet, so there is no usual norm
        return math.inf, before
    medians[-1] = median.clamp(max=limit)
    return float(limit), medians


def clip(stack: Stack, norms: Tensor, limit: float) -> Stack:
    """Scale updates whose norm exceeds `limit` down to it; directions stay."""
    scale = (limit / norms.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)
    return stack._replace(mean=stack.mean * scale.to(stack.mean.dtype).unsqueeze(1))


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
