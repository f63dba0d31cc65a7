"""Clients: who holds which examples."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steelyard.data.dataset import Dataset
from steelyard.data.examples import AnyExamples, Examples, examples
from steelyard.errors import InputError
from steelyard.seeds import generator
from steelyard.types import ClientId

Shift = Callable[[Tensor, int], Tensor]
"""What a client's images look like: (images, number of the client) -> images."""


@dataclass(frozen=True, eq=False)
class Client:
    """A party of the federation: its name, what it trains on and what it is tested on."""

    id: ClientId
    train: AnyExamples
    test: AnyExamples | None = None

    def __init__(self, id: ClientId, train: Any, test: Any = None) -> None:
        """`train` and `test` are (inputs, targets) arrays or tensors, or torch data sets."""
        object.__setattr__(self, "id", str(id))
        object.__setattr__(self, "train", examples(train, name=f"client {id!r}, train"))
        object.__setattr__(
            self, "test", None if test is None else examples(test, name=f"client {id!r}, test")
        )


def as_clients(clients: Sequence[Client] | Mapping[str, Any]) -> tuple[Client, ...]:
    """Clients in the order of their ids, from a list or from {name: data}."""
    if isinstance(clients, Mapping):
        clients = [data if isinstance(data, Client) else Client(name, data) for name, data in clients.items()]
    if not clients:
        raise InputError("a federation needs at least one client.")
    for each in clients:
        if not isinstance(each, Client):
            raise InputError(
                f"clients must be sy.Client objects or {{name: data}}, not {type(each).__name__}."
            )
    ordered = tuple(sorted(clients, key=lambda client: client.id))
    for client, following in itertools.pairwise(ordered):
        if client.id == following.id:
            raise InputError(f"two clients are called {client.id!r}; give each its own id.")
    for client in ordered:
        if len(client.train) == 0:
            raise InputError(f"client {client.id!r} has no examples; leave it out or give it some.")
    return ordered


def deal(dataset: Dataset, rows: Sequence[Tensor], seed: int, shift: Shift | None = None) -> list[Client]:
    """Clients that hold the given training rows.

    Each is tested on rows of the test set with the label mix of its own training rows, so no training data is
    given up; with a shift, the same change is made to what it is tested on.
    """
    width = len(str(len(rows) - 1))
    clients = []
    for number, mine in enumerate(rows):
        if len(mine) == 0:
            raise InputError(f"the partition leaves client-{number:0{width}d} empty; take fewer clients.")
        train = dataset.train.take(mine)
        test = dataset.test.take(
            _matching(train.labels, dataset.test.labels, generator(seed, number, "client-test"))
        )
        if shift is not None:
            train, test = _shifted(train, shift, number), _shifted(test, shift, number)
        clients.append(Client(f"client-{number:0{width}d}", train, test))
    return clients


def _matching(train: Tensor, test: Tensor, order: torch.Generator) -> Tensor:
    """Positions of `test` with the label mix of `train`: as many as train has, at least 100, if they last."""
    classes = int(max(train.max(), test.max())) + 1
    shares = torch.bincount(train, minlength=classes).double() / len(train)
    stock = torch.bincount(test, minlength=classes)
    held = (shares > 0) & (stock > 0)
    if not bool(held.any()):
        return torch.arange(len(test))
    size = min(float((stock[held] / shares[held]).min()), max(len(train), 100.0))
    wanted = torch.where(held, (shares * size).round().clamp(min=1).long(), 0)
    shuffled = torch.randperm(len(test), generator=order)
    shuffled = shuffled[torch.argsort(test[shuffled], stable=True)]
    starts = stock.cumsum(0) - stock
    picks = [
        shuffled[start : start + count] for start, count in zip(starts.tolist(), wanted.tolist(), strict=True)
    ]
    return torch.cat(picks).sort().values


def _shifted(data: Examples, shift: Shift, number: int) -> Examples:
    inputs = shift(data.inputs[data.rows], number)
    return replace(data, inputs=inputs, targets=data.labels, rows=torch.arange(len(inputs)))
