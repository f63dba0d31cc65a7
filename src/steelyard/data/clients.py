"""Clients: who holds which examples."""

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.data.dataset import Dataset
from steelyard.data.examples import AnyExamples, Examples, examples
from steelyard.errors import InputError
from steelyard.seeds import generator
from steelyard.types import ClientId

Shift = Callable[[Tensor, int], Tensor]
"""What a client's images look like: (images, number of the client) -> images."""

Part = Literal["test", "held_out", "common"]
"""What a client's model can be looked at on: its own test data, what it holds out, the common test set."""


class Client:
    """A party of the federation: its name, what it trains on, what it is tested on, perhaps its model."""

    def __init__(
        self,
        id: ClientId,
        train: Any,
        test: Any = None,
        held_out: Any = None,
        model: nn.Module | None = None,
    ) -> None:
        """`train`, `test` and `held_out` are (inputs, targets) arrays or tensors, or torch data sets.

        `test` may also be a function that returns such data; it is called when they are first needed.
        `held_out` are examples that are not trained on, from which the client finds the temperature of the
        shared model. A client may bring a `model` of its own where only the head is shared.
        """
        self.id = str(id)
        self.train = examples(train, name=f"client {id!r}, train")
        self.held_out = None if held_out is None else examples(held_out, name=f"client {id!r}, held out")
        self.model = model
        self._test = test if callable(test) else self._check_test(test)

    @cached_property
    def test(self) -> AnyExamples | None:
        return self._check_test(self._test()) if callable(self._test) else self._test

    def _check_test(self, data: Any) -> AnyExamples | None:
        return None if data is None else examples(data, name=f"client {self.id!r}, test")


class Population(Mapping[ClientId, Client]):
    """Clients that are made when they are needed, and forgotten: only those at work cost anything.

    >>> Population(names, lambda name: (read_inputs(name), read_targets(name)))
    """

    RECENT = 4096  # clients that are kept, in each process, in case they are needed again

    def __init__(
        self, ids: Iterable[ClientId], make: Callable[[ClientId], Any], sizes: Sequence[int] | None = None
    ) -> None:
        """`make` gives a client's data, or a `Client`; `sizes`, where known, are its training examples."""
        names = [str(id) for id in ids]
        if sizes is not None and len(sizes) != len(names):
            raise InputError(f"there are {len(sizes)} sizes for {len(names)} clients.")
        order = sorted(range(len(names)), key=names.__getitem__)
        self.ids = tuple(names[place] for place in order)
        self._sizes = None if sizes is None else tuple(sizes[place] for place in order)
        self._make = make
        self._recent: dict[ClientId, Client] = {}
        _check_ids(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.ids)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._place(id) is not None

    def __getitem__(self, id: ClientId) -> Client:
        if id in self._recent:
            return self._recent[id]
        if id not in self:
            raise KeyError(id)
        client = _as_client(id, self._make(id))
        while len(self._recent) >= self.RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[id] = client
        return client

    def size(self, id: ClientId) -> int:
        """A client's training examples, or 0 if they are not known before it is made."""
        place = self._place(id)
        return 0 if self._sizes is None or place is None else self._sizes[place]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recent": {}}

    def _place(self, id: ClientId) -> int | None:
        place = bisect.bisect_left(self.ids, id)
        return place if place < len(self.ids) and self.ids[place] == id else None


def as_clients(clients: Sequence[Client] | Mapping[str, Any]) -> Mapping[ClientId, Client]:
    """Clients by name, in the order of their names, from a list, from {name: data} or from a population."""
    if isinstance(clients, Population):
        return clients
    if isinstance(clients, Mapping):
        clients = [_as_client(name, data) for name, data in clients.items()]
    for each in clients:
        if not isinstance(each, Client):
            raise InputError(
                f"clients must be sy.Client objects or {{name: data}}, not {type(each).__name__}."
            )
    ordered = sorted(clients, key=lambda client: client.id)
    _check_ids([client.id for client in ordered])
    return {client.id: _not_empty(client) for client in ordered}


def _as_client(name: ClientId, data: Any) -> Client:
    return _not_empty(data if isinstance(data, Client) else Client(name, data))


def _check_ids(ids: Sequence[ClientId]) -> None:
    if not ids:
        raise InputError("a federation needs at least one client.")
    for id, following in itertools.pairwise(ids):
        if id == following:
            raise InputError(f"two clients are called {id!r}; give each its own id.")


def _not_empty(client: Client) -> Client:
    if len(client.train) == 0:
        raise InputError(f"client {client.id!r} has no examples; leave it out or give it some.")
    return client


def deal(
    dataset: Dataset, rows: Sequence[Tensor], seed: int, shift: Shift | None = None, holdout: float = 0.0
) -> Population:
    """Clients that hold the given training rows; a share of them, `holdout`, is not trained on.

    Each is tested on rows of the test set with the label mix of its own rows, so no training data is
    given up, or on all of them if the targets are numbers; with a shift, the same change is made to what it
    is tested on.
    """
    width = len(str(len(rows) - 1))
    ids = [f"client-{number:0{width}d}" for number in range(len(rows))]
    sizes = [len(mine) - held_count(len(mine), holdout) for mine in rows]
    if 0 in sizes:
        raise InputError(f"the partition leaves {ids[sizes.index(0)]} empty; take fewer clients.")
    return Population(ids, Dealer(dataset, rows, seed, shift, holdout), sizes)


def held_count(size: int, share: float) -> int:
    """How many of a client's examples are held out: at least one, if it has more and the share is not 0."""
    return min(max(round(share * size), 1), size - 1) if share > 0 and size > 1 else 0


class Dealer:
    """Makes a dealt client from its name. The rows of all clients are one vector."""

    def __init__(
        self,
        dataset: Dataset,
        rows: Sequence[Tensor],
        seed: int,
        shift: Shift | None = None,
        holdout: float = 0.0,
    ) -> None:
        self.dataset, self.seed, self.shift, self.holdout = dataset, seed, shift, holdout
        self.rows = torch.cat(list(rows))
        self.stops = list(itertools.accumulate(len(mine) for mine in rows))
        labels = dataset.test.labels
        if labels.is_floating_point():  # numbers have no mix: everyone is tested on all
            labels = torch.zeros(len(labels), dtype=torch.int64)
        self.stock = torch.bincount(labels)
        self.shelves = torch.split(torch.argsort(labels, stable=True), self.stock.tolist())
        """Positions in the test set, label by label."""

    def __call__(self, id: ClientId) -> Client:
        number = int(id.removeprefix("client-"))
        start = self.stops[number - 1] if number else 0
        mine = self.dataset.train.take(self.rows[start : self.stops[number]])
        train, held_out = self._split(self._shifted(mine, number), int(mine.rows[0]))
        return Client(id, train, partial(self._test, mine.labels, number), held_out)

    def _split(self, data: Examples, first: int) -> tuple[Examples, Examples | None]:
        """What is trained on and what is held out, drawn by what a client holds (its first row): whoever
        holds the same, as an extra adversary does, holds out the same."""
        held = held_count(len(data), self.holdout)
        if not held:
            return data, None
        drawn = torch.randperm(len(data), generator=generator(self.seed, first, "holdout"))
        return data.take(drawn[held:].sort().values), data.take(drawn[:held].sort().values)

    def _test(self, labels: Tensor, number: int) -> Examples:
        order = generator(self.seed, number, "client-test")
        return self._shifted(self.dataset.test.take(self._matching(labels, order)), number)

    def _shifted(self, data: Examples, number: int) -> Examples:
        if self.shift is None:
            return data
        inputs = self.shift(data.inputs[data.rows], number)
        return replace(data, inputs=inputs, targets=data.labels, rows=torch.arange(len(inputs)))

    def _matching(self, labels: Tensor, order: torch.Generator) -> Tensor:
        """Positions of the test set with the label mix of `labels`: as many, at least 100, if they last."""
        if labels.is_floating_point():
            return torch.arange(len(self.dataset.test))
        classes = max(int(labels.max()) + 1, len(self.stock))
        shares = torch.bincount(labels, minlength=classes).double() / len(labels)
        stock = F.pad(self.stock, (0, classes - len(self.stock)))
        held = (shares > 0) & (stock > 0)
        if not bool(held.any()):
            return torch.arange(int(stock.sum()))
        size = min(float((stock[held] / shares[held]).min()), max(len(labels), 100.0))
        wanted = (shares * size).round().clamp(min=1).long()
        picks = []
        for label in held.nonzero().flatten().tolist():
            shelf = self.shelves[label]
            picks.append(shelf[torch.randperm(len(shelf), generator=order)[: wanted[label]]])
        return torch.cat(picks).sort().values
