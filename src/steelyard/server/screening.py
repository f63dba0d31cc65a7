"""What is done to replies before they are weighed: set aside, shortened, stretched. Nothing is trusted."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from steelyard.types import ClientId, Message, Reply, Stack

LARGEST = 1e30  # finite numbers above this would overflow float32 once they are added up
EXTREME = 1e6  # times the usual precision is as much as can be told apart
USUAL = 3.0  # times the usual length is what an honest update may have


def screen(
    replies: Sequence[Reply], invited: Sequence[ClientId], like: Message, max_examples: int
) -> tuple[list[Reply], dict[ClientId, str]]:
    """The usable replies in the order of client ids, and a reason for each client that is set aside."""
    by_client: dict[ClientId, Reply] = {}
    refused: dict[ClientId, str] = {}
    expected = set(invited)
    for reply in replies:
        if reply.client not in expected:
            refused[reply.client] = "was not invited to this round"
        elif reply.client in by_client:
            refused[reply.client] = "sent more than one reply"
        else:
            by_client[reply.client] = reply
            if reason := _fault(reply, like, max_examples):
                refused[reply.client] = reason
    for client in invited:
        if client not in by_client:
            refused[client] = "sent no reply"
    return [by_client[client] for client in sorted(by_client) if client not in refused], refused


def _fault(reply: Reply, like: Message, max_examples: int) -> str | None:
    """What is wrong with one reply, if anything."""
    if reply.message.slots != like.slots:
        return f"sent {sorted(reply.message.slots)} where {sorted(like.slots)} was asked for"
    for slot in like.slots:
        given, wanted = getattr(reply.message, slot), getattr(like, slot)
        if not isinstance(given, Tensor) or given.layout != wanted.layout or given.device != wanted.device:
            return f"sent a {slot} that is not a plain tensor"
        if given.shape != wanted.shape:
            return f"sent a {slot} of shape {tuple(given.shape)}, not {tuple(wanted.shape)}"
        if given.dtype != wanted.dtype:
            return f"sent a {slot} of {given.dtype}, not {wanted.dtype}"
        least, most = torch.aminmax(given)
        if not (float(least) >= -LARGEST and float(most) <= LARGEST):
            return f"sent a {slot} that is not finite, or beyond {LARGEST:g}"
    if reply.message.variance is not None and bool((reply.message.variance < 0).any()):
        return "sent a negative variance"
    count = reply.num_examples
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= max_examples:
        return f"claims {count!r} examples (1 to {max_examples:,} are believed)"
    return None


def norm_limit(
    norms: Tensor, limit: float | Literal["median", "usual"], before: Tensor | None
) -> tuple[float, Tensor | None]:
    """How long an update may be, and the lengths of the rounds so far if that is what it comes from."""
    if isinstance(limit, float | int):
        return float(limit), None
    middle = norms.quantile(0.5)
    if limit == "median":
        return float(middle), None
    so_far = middle.unsqueeze(0) if before is None else torch.cat([before, middle.unsqueeze(0)])
    bound = USUAL * so_far.quantile(0.5)
    if not bound > 0:  # nobody has moved yet: nothing is usual
        return math.inf, before
    so_far[-1] = middle.clamp(max=bound)
    return float(bound), so_far


def clip(stack: Stack, norms: Tensor, bound: float) -> Stack:
    """Shorten the updates whose norm exceeds the bound; the direction stays."""
    scale = (bound / norms.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)
    return stack._replace(mean=stack.mean * scale.to(stack.mean.dtype).unsqueeze(1))


def by_precision(means: Tensor, variances: Tensor) -> Tensor:
    """Means times precision over the coordinate's median, or its inverse where that is greater than 1.

    So far does a client pull where posteriors are merged by precision; and who claims to know nothing does
    not pass for one that hardly moved. Points stay as they are.
    """
    usual = variances.median(dim=0).values
    ratio = (usual / variances.clamp(min=torch.finfo(variances.dtype).tiny)).clamp(1 / EXTREME, EXTREME)
    return means * torch.where(usual > 0, torch.maximum(ratio, 1 / ratio), 1.0)
