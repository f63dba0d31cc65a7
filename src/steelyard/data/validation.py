"""Clients that hold out a share of their training data, to choose the best model by."""

import copy
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch

from steelyard.data.changed import with_each_changed
from steelyard.data.clients import Client, Population
from steelyard.data.dealing import num_held_out
from steelyard.data.examples import AnyExamples, StreamExamples, examples
from steelyard.errors import InputError, Range, check_setting
from steelyard.seeds import generator
from steelyard.types import ClientId

SHARE = Range("greater than 0 and less than 1", above=True, high=math.nextafter(1.0, 0.0))


def validation_data(given: Any, dtype: torch.dtype, has_private_layers: bool) -> AnyExamples | float | None:
    """What a user gave as `validation`: a share of each client's data, or a set of the server's own."""
    if given is None:
        return None
    if isinstance(given, Real):
        check_setting("validation", given, SHARE)
        return float(given)
    if has_private_layers:
        raise InputError(
            "validation must be a share, such as 0.1, of each client's training data where only the head is "
            "shared: the server has no whole model to score."
        )
    found = examples(given, name="validation").to(dtype)
    if not len(found):
        raise InputError("validation: the set is empty; give it examples or leave it out.")
    return found


def with_held_out(clients: Mapping[ClientId, Client], share: float, seed: int) -> Mapping[ClientId, Client]:
    """The clients, each with a share of its training examples as `held_out`, at least one of two or more.

    A client that brings `held_out` examples keeps these, and all of its training examples. The draw depends
    on the seed and the client's id alone, so it is the same wherever the client is.
    """
    return with_each_changed(clients, Split(share, seed), _sizes_after(clients, share))


def _sizes_after(clients: Mapping[ClientId, Client], share: float) -> list[int] | None:
    """The training examples that are left to each client of a population.

    Its first client shows whether its clients bring `held_out` examples: then all of them are left.
    """
    if not isinstance(clients, Population):
        return None
    sizes = [clients.size(id) for id in clients]
    with suppress(Exception):  # a client that cannot be created fails by name in a round
        if any(sizes) and clients.create(clients.ids[0]).held_out is not None:
            return sizes
    return [size - num_held_out(size, share) for size in sizes]


@dataclass(frozen=True)
class Split:
    """Holds a share of a client's training examples out."""

    share: float
    seed: int

    def __call__(self, id: ClientId, client: Client) -> Client:
        if client.held_out is not None:
            return client
        data = client.train
        if isinstance(data, StreamExamples):
            raise InputError(
                f"client {id!r} reads its training data as a stream, of which no share can be held out; give "
                "the client `held_out` examples, or the server a set of its own: validation=(x, y)."
            )
        size = num_held_out(len(data), self.share)
        if not size:
            return client
        drawn = torch.randperm(len(data), generator=generator(self.seed, id, "validation"))
        client = copy.copy(client)
        client.train = data.take(drawn[size:].sort().values)
        client.held_out = data.take(drawn[:size].sort().values)
        return client
