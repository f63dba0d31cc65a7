"""Replies that clients send, screened: an unusable one is rejected with the reason."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steelyard.server.reasons import UnusableError, kind, shown, why
from steelyard.server.stacking import matrix_view
from steelyard.types import CLAIMS, ClientId, Message, Reply

MAX_MAGNITUDE = 1e30  # larger finite values would overflow float32 when they are summed
MIN_VALUES = {"mean": -MAX_MAGNITUDE, "variance": 0.0}
INTEGERS: frozenset[type] = frozenset({int, np.int64, np.int32})
NUMBERS = INTEGERS | {float, np.float64, np.float32}


def screen_replies(
    given: Mapping[ClientId, object], like: Message, max_examples: int
) -> tuple[list[Reply], dict[ClientId, str]]:
    """The usable replies in the order of client ids, and the reason for each other client."""
    replies: list[Reply] = []
    rejected: dict[ClientId, str] = {}
    for client in sorted(given):
        try:
            replies.append(_reply(client, given[client], like, max_examples))
        except Exception as error:
            rejected[client] = why(error, "a reply")
    faults = _faulty_values(replies)
    if faults:
        replies = [reply for reply in replies if reply.client not in faults]
    return replies, rejected | faults


def _reply(client: ClientId, reply: Any, like: Message, max_examples: int) -> Reply:
    """A reply with everything in it checked but the values of its vectors."""
    if type(reply) is not Reply:
        raise UnusableError(f"sent {kind(reply)} where a reply was asked for")
    if type(reply.client) is not str or reply.client != client:
        raise UnusableError("sent a reply in the name of another client")
    if type(reply.message) is not Message:
        raise UnusableError(f"sent {kind(reply.message)} where a message was asked for")
    message = _message(reply.message, like)
    count, claims = reply.num_examples, _claims(reply.metrics)
    if type(count) not in INTEGERS or not 1 <= count <= max_examples:
        raise UnusableError(f"claims {shown(count)} examples (1 to {max_examples:,} are believed)")
    if message is reply.message and claims is reply.metrics and type(count) is int:
        return reply
    return Reply(client, message, int(count), claims)


def _message(given: Message, like: Message) -> Message:
    """The message itself, or one with the plain tensors of its values."""
    mean, variance = given
    if (mean is None, variance is None) != (False, like.variance is None):
        slots = sorted(given.slots)
        raise UnusableError(f"sent {slots} where {sorted(like.slots)} was asked for")
    plain = _vector("mean", mean, like.mean)
    if like.variance is None:
        return given if plain is mean else Message(plain)
    return Message(plain, _vector("variance", variance, like.variance))


def _vector(slot: str, given: Any, wanted: Tensor) -> Tensor:
    """A plain tensor of the right form. Of a tensor that needs gradients, as of an `nn.Parameter`, the values
    are taken; other subclasses are rejected."""
    if type(given) not in (Tensor, nn.Parameter) or given.layout != wanted.layout or Tensor.is_neg(given):
        raise UnusableError(f"sent a {slot} that is not a plain tensor")
    if given.device != wanted.device:
        raise UnusableError(f"sent a {slot} that is not a plain tensor")
    if given.shape != wanted.shape:
        raise UnusableError(f"sent a {slot} of shape {tuple(given.shape)}, not {tuple(wanted.shape)}")
    if given.dtype != wanted.dtype:
        raise UnusableError(f"sent a {slot} of {given.dtype}, not {wanted.dtype}")
    return Tensor.detach(given) if given.requires_grad else given


def _claims(metrics: Any) -> dict[str, float]:
    """The known metrics of a reply, where they are finite numbers; the same object if that is all it has."""
    if type(metrics) is not dict:
        return {}
    for name, value in metrics.items():
        if type(name) is not str or name not in CLAIMS or type(value) is not float:
            break
        if not -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
            break
    else:
        return metrics
    return {
        name: float(value)
        for name, value in metrics.items()
        if type(name) is str and name in CLAIMS and type(value) in NUMBERS and abs(value) <= MAX_MAGNITUDE
    }


def _faulty_values(replies: Sequence[Reply]) -> dict[ClientId, str]:
    """The reason for each reply with values that cannot be used."""
    if not replies:
        return {}
    try:
        return _check_values(replies)
    except Exception as error:  # one of them cannot be read: each is checked by itself
        if len(replies) == 1:
            return {replies[0].client: why(error, "a reply")}
        faults = (_faulty_values([reply]) for reply in replies)
        return {client: reason for each in faults for client, reason in each.items()}


def _check_values(replies: Sequence[Reply]) -> dict[ClientId, str]:
    """The same, or an exception if a vector cannot be read."""
    faults: dict[ClientId, str] = {}
    for slot in ("variance", "mean"):
        rows = [row for reply in replies if (row := getattr(reply.message, slot)) is not None]
        if not rows or _are_in_range(rows, MIN_VALUES[slot]):
            continue
        least, most = map(torch.stack, zip(*map(torch.aminmax, rows), strict=True))
        usable = (least >= -MAX_MAGNITUDE) & (most <= MAX_MAGNITUDE)
        faults |= _reason(replies, usable, f"sent a {slot} that is not finite, or beyond {MAX_MAGNITUDE:g}")
        if slot == "variance":
            faults |= _reason(replies, ~(least < 0), "sent a negative variance")
    return faults


def _reason(replies: Sequence[Reply], usable: Tensor, reason: str) -> dict[ClientId, str]:
    if bool(usable.all()):
        return {}
    return {reply.client: reason for reply, fine in zip(replies, usable.tolist(), strict=True) if not fine}


def _are_in_range(rows: Sequence[Tensor], minimum: float) -> bool:
    """Whether all values of all rows are finite and in range; false for nan."""
    matrix = matrix_view(rows)
    if matrix is None:
        for row in rows:
            _check_memory(row)
    ranges = [torch.aminmax(matrix)] if matrix is not None else map(torch.aminmax, rows)
    return all(minimum <= float(least) and float(most) <= MAX_MAGNITUDE for least, most in ranges)


def _check_memory(row: Tensor) -> None:
    """Reject a tensor whose memory was freed or made smaller: reading it could end the process."""
    last = Tensor.storage_offset(row) + (row.shape[0] - 1) * Tensor.stride(row, 0)
    if Tensor.untyped_storage(row).nbytes() < (last + 1) * Tensor.element_size(row):
        raise UnusableError("sent a tensor without its memory")
