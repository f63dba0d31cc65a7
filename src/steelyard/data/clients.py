"""Clients and their examples."""

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
"""A covariate shift: (images [N, C, H, W], position of the client) -> that client's version of the images."""

Part = Literal["test", "held_out", "common"]
"""Data that a client's model can be evaluated on: the client's `test` or `held_out` examples, or the test set
that is common to all clients."""


class Client:
    """One client of the federation: an id, its training and test examples and, optionally, its own model."""

    def __init__(
        self,
        id: ClientId,
        train: Any,
        test: Any = None,
        held_out: Any = None,
        model: nn.Module | None = None,
    ) -> None:
        """`train`, `test` and `held_out` are (inputs, targets) arrays or tensors, or torch data sets.

        `test` may also be a function without arguments that returns such data; it is called on first use.
        `held_out` examples are not trained on: the client fits the temperature of the shared model on them.
        `model` is the client's own model, for runs that share only the head.
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
    """Clients by id that are created on first use, so that idle clients take no memory.

    >>> Population(ids, lambda id: (read_inputs(id), read_targets(id)))
    """

    RECENT = 4096  # each process caches this many clients; the one that was created first is dropped first

    def __init__(
        self, ids: Iterable[ClientId], make: Callable[[ClientId], Any], sizes: Sequence[int] | None = None
    ) -> None:
        """`make(id)` returns a client's training data or a `Client`; `sizes` are the numbers of its training
        examples, in the order of `ids`, if they are known."""
        names = [str(id) for id in ids]
        if sizes is not None and len(sizes) != len(names):
            raise InputError(f"there are {len(sizes)} sizes for {len(names)} clients.")
        order = sorted(range(len(names)), key=names.__getitem__)
        self.ids = tuple(names[position] for position in order)
        self._sizes = None if sizes is None else tuple(sizes[position] for position in order)
        self._make = make
        self._recent: dict[ClientId, Client] = {}
        _check_ids(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.ids)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._position(id) is not None

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
        """The number of a client's training examples, or 0 if it is unknown until the client is created."""
        position = self._position(id)
        return 0 if self._sizes is None or position is None else self._sizes[position]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recent": {}}

    def _position(self, id: ClientId) -> int | None:
        position = bisect.bisect_left(self.ids, id)
        return position if position < len(self.ids) and self.ids[position] == id else None


def as_clients(clients: Sequence[Client] | Mapping[str, Any]) -> Mapping[ClientId, Client]:
    """Clients by id, sorted by id, from a list of clients, {id: data} or a population."""
    if isinstance(clients, Population):
        return clients
    if isinstance(clients, Mapping):
        clients = [_as_client(id, data) for id, data in clients.items()]
    for client in clients:
        if not isinstance(client, Client):
            raise InputError(
                f"clients must be sy.Client objects or {{name: data}}, not {type(client).__name__}."
            )
    ordered = sorted(clients, key=lambda client: client.id)
    _check_ids([client.id for client in ordered])
    return {client.id: _not_empty(client) for client in ordered}


def _as_client(id: ClientId, data: Any) -> Client:
    return _not_empty(data if isinstance(data, Client) else Client(id, data))


def _check_ids(ids: Sequence[ClientId]) -> None:
    if not ids:
        raise InputError("a federation needs at least one client.")
    for id, next_id in itertools.pairwise(ids):
        if id == next_id:
            raise InputError(f"two clients are called {id!r}; give each its own id.")


def _not_empty(client: Client) -> Client:
    if len(client.train) == 0:
        raise InputError(f"client {client.id!r} has no examples; leave it out or give it some.")
    return client


def deal(
    dataset: Dataset, rows: Sequence[Tensor], seed: int, shift: Shift | None = None, holdout: float = 0.0
) -> Population:
    """Clients that hold the given training rows; each holds out a share `holdout` of them.

    A client is tested on rows of the test set that have the label mix of its training rows, or on the whole
    test set if the targets are numbers. A shift changes its training, held-out and test images alike.
    """
    width = len(str(len(rows) - 1))
    ids = [f"client-{number:0{width}d}" for number in range(len(rows))]
    sizes = [len(part) - num_held_out(len(part), holdout) for part in rows]
    if 0 in sizes:
        raise InputError(f"the partition leaves {ids[sizes.index(0)]} empty; take fewer clients.")
    return Population(ids, Dealer(dataset, rows, seed, shift, holdout), sizes)


def num_held_out(size: int, share: float) -> int:
    """How many of `size` examples are held out: at least 1 if `share` is not 0, but never all."""
    return min(max(round(share * size), 1), size - 1) if share > 0 and size > 1 else 0


class Dealer:
    """Creates a client of `deal` from its id. The rows of all clients are stored in one vector."""

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
        self.stops = list(itertools.accumulate(len(part) for part in rows))
        labels = dataset.test.labels
        if labels.is_floating_point():  # numbers have no label mix: every client is tested on all rows
            labels = torch.zeros(len(labels), dtype=torch.int64)
        self.label_counts = torch.bincount(labels)
        self.rows_by_label = torch.split(torch.argsort(labels, stable=True), self.label_counts.tolist())
        """Positions in the test set of each label."""

    def __call__(self, id: ClientId) -> Client:
        number = int(id.removeprefix("client-"))
        start = self.stops[number - 1] if number else 0
        data = self.dataset.train.take(self.rows[start : self.stops[number]])
        train, held_out = self._split(self._shifted(data, number), int(data.rows[0]))
        return Client(id, train, partial(self._test, data.labels, number), held_out)

    def _split(self, data: Examples, first_row: int) -> tuple[Examples, Examples | None]:
        """Training and held-out examples. The draw depends on the client's first row, so clients with the
        same rows (an extra adversary and the client that it copies) hold out the same examples."""
        size = num_held_out(len(data), self.holdout)
        if not size:
            return data, None
        drawn = torch.randperm(len(data), generator=generator(self.seed, first_row, "holdout"))
        return data.take(drawn[size:].sort().values), data.take(drawn[:size].sort().values)

    def _test(self, labels: Tensor, number: int) -> Examples:
        draw = generator(self.seed, number, "client-test")
        return self._shifted(self.dataset.test.take(self._matching(labels, draw)), number)

    def _shifted(self, data: Examples, number: int) -> Examples:
        if self.shift is None:
            return data
        inputs = self.shift(data.inputs[data.rows], number)
        return replace(data, inputs=inputs, targets=data.labels, rows=torch.arange(len(inputs)))

    def _matching(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        """Test positions with the label mix of `labels`: as many, at least 100, unless a label runs out."""
        if labels.is_floating_point():
            return torch.arange(len(self.dataset.test))
        classes = max(int(labels.max()) + 1, len(self.label_counts))
        shares = torch.bincount(labels, minlength=classes).double() / len(labels)
        available = F.pad(self.label_counts, (0, classes - len(self.label_counts)))
        common = (shares > 0) & (available > 0)
        if not bool(common.any()):
            return torch.arange(int(available.sum()))
        size = min(float((available[common] / shares[common]).min()), max(len(labels), 100.0))
        counts = (shares * size).round().clamp(min=1).long()
        picks = []
        for label in common.nonzero().flatten().tolist():
            rows = self.rows_by_label[label]
            picks.append(rows[torch.randperm(len(rows), generator=draw)[: counts[label]]])
        return torch.cat(picks).sort().values
