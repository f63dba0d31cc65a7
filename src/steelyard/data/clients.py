"""Clients and their examples."""

import bisect
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn

from steelyard.data.data_frames import FrameForm, Target, form_of
from steelyard.data.dataset_examples import Collate
from steelyard.data.examples import AnyExamples, ArrayExamples, Examples, examples
from steelyard.errors import InputError
from steelyard.seeds import seeded
from steelyard.types import ClientId

Part = Literal["test", "held_out", "common"]
"""Data that a client's model can be evaluated on: the client's `test` or `held_out` examples, or the test set
that is common to all clients."""


KEPT_CLIENTS = 4096
"""Clients of a population that stay in memory, in all processes of a run together."""


class Client:
    """One client of the federation: an id, its training and test examples and, optionally, its own model."""

    def __init__(
        self,
        id: ClientId,
        train: Any,
        test: Any = None,
        held_out: Any = None,
        model: nn.Module | None = None,
        *,
        target: Target | None = None,
        collate_fn: Collate | None = None,
    ) -> None:
        """`train`, `test` and `held_out` are anything that `sy.examples` takes.

        `test` may also be a function without arguments that returns such data; it is called on first use.
        `held_out` examples are not trained on: the client fits the temperature of the shared model on them.
        `model` is the client's own model, for runs that share only the head.
        `target` and `collate_fn` are those of `sy.examples`, for all three.
        """
        self.id = str(id)
        self._options: dict[str, Any] = {"target": target, "collate_fn": collate_fn}
        self.train = examples(train, name=f"client {id!r}, train", **self._options)
        self.held_out = (
            None if held_out is None else examples(held_out, name=f"client {id!r}, held out", **self._options)
        )
        self.model, self._dtype = model, torch.float32
        self.form = form_of([self.train, self.held_out], f"client {id!r}, train")
        self._test = test if callable(test) else self._check_test(test)
        if self.form is not None:
            vars(self).update(self._in_form(self.form))

    @cached_property
    def test(self) -> AnyExamples | None:
        if not callable(self._test):
            return self._test
        with seeded(0, self.id, "test data"):  # the same data in whichever process they are first used
            found = self._test()
        return self._check_test(self._test if isinstance(found, Iterator) else found)

    @property
    def own_code(self) -> bool:
        """Whether code of the user's own runs when its data are read."""
        return any(
            part is not None and not isinstance(part, Examples | ArrayExamples)
            for part in (self.train, self.held_out, self._test)
        )

    def to(self, dtype: torch.dtype) -> "Client":
        """The same client with data for models of this floating-point type, unless it has its own model."""
        if self.model is not None:
            dtype = input_dtype(self.model)
        parts = self.parts
        changed = {name: part.to(dtype) for name, part in parts.items()}
        if dtype == self._dtype and all(changed[name] is part for name, part in parts.items()):
            return self
        client = copy.copy(self)
        vars(client).pop("test", None)
        vars(client).update(changed, _dtype=dtype)
        return client

    def with_form(self, form: FrameForm) -> "Client":
        """The same client with the columns of its frames in the order of this form."""
        client = copy.copy(self)
        vars(client).pop("test", None)
        vars(client).update(self._in_form(form), form=form)
        return client

    @property
    def parts(self) -> dict[str, AnyExamples]:
        """Its examples by the name of their attribute; test data that a function will return are left out."""
        found = {"train": self.train, "held_out": self.held_out, "_test": self._test}
        return {name: part for name, part in found.items() if part is not None and not callable(part)}

    def _in_form(self, form: FrameForm) -> dict[str, AnyExamples]:
        words = {"train": "train", "held_out": "held out", "_test": "test"}
        return {
            name: form.fit(part, f"client {self.id!r}, {words[name]}") for name, part in self.parts.items()
        }

    def _check_test(self, data: Any) -> AnyExamples | None:
        if data is None:
            return None
        where = f"client {self.id!r}, test"
        found = examples(data, name=where, **self._options).to(self._dtype)
        return found if self.form is None else self.form.fit(found, where)


def input_dtype(model: nn.Module) -> torch.dtype:
    """The floating-point type of the inputs that a model wants: that of its first parameter."""
    return next((parameter.dtype for parameter in model.parameters()), torch.float32)


class Population(Mapping[ClientId, Client]):
    """Clients by id that are created on first use, so that idle clients take no memory.

    >>> Population(ids, lambda id: (read_inputs(id), read_targets(id)))
    """

    def __init__(
        self,
        ids: Iterable[ClientId],
        make: Callable[[ClientId], Any],
        sizes: Sequence[int] | None = None,
        keep: int = KEPT_CLIENTS,
    ) -> None:
        """`make(id)` returns a client's training data or a `Client`; `sizes` are the numbers of its training
        examples, in the order of `ids`, if they are known. The clients that were used last stay in memory, at
        most `keep` in all processes of a run together; others are created again when they are needed."""
        names = [str(id) for id in ids]
        if sizes is not None and len(sizes) != len(names):
            raise InputError(f"there are {len(sizes)} sizes for {len(names)} clients.")
        if keep < 1:
            raise InputError(f"keep must be at least 1 client, not {keep}.")
        order = sorted(range(len(names)), key=names.__getitem__)
        self.ids = tuple(names[position] for position in order)
        self._sizes = None if sizes is None else tuple(sizes[position] for position in order)
        self._make, self.dtype = make, torch.float32
        self.keep = self._limit = keep
        self._recent: dict[ClientId, Client] = {}
        self.form: FrameForm | None = None
        """The columns of the first client that was created from a frame; those of others are put in order."""
        _check_ids(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.ids)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._position(id) is not None

    def __getitem__(self, id: ClientId) -> Client:
        client = self._recent.pop(id, None)
        if client is None:
            client = self.create(id)
            while len(self._recent) >= self._limit:
                del self._recent[next(iter(self._recent))]
        self._recent[id] = client  # the last one is the one that was used last
        return client

    def create(self, id: ClientId) -> Client:
        """A client that is not kept."""
        if id not in self:
            raise KeyError(id)
        with seeded(0, id, "make") if self.own_code else nullcontext():
            client = _as_client(id, self._make(id)).to(self.dtype)
        if client.model is not None or client.form is None:
            return client
        self.form = self.form or client.form
        return client.with_form(self.form)

    @property
    def own_code(self) -> bool:
        """Whether code of the user's own creates or reads clients."""
        return bool(getattr(self._make, "own_code", True))

    def to(self, dtype: torch.dtype) -> "Population":
        """The same population with data for models of this floating-point type."""
        if dtype == self.dtype:
            return self
        changed = copy.copy(self)
        changed.dtype, changed._recent = dtype, {}
        return changed

    def divide(self, processes: int) -> None:
        """Keep a share of `keep`, here and in copies: several processes will each have one."""
        self._limit = max(1, self.keep // processes)
        while len(self._recent) > self._limit:
            del self._recent[next(iter(self._recent))]

    def size(self, id: ClientId) -> int:
        """The number of a client's training examples, or 0 if it is unknown until the client is created."""
        position = self._position(id)
        return 0 if self._sizes is None or position is None else self._sizes[position]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recent": {}}

    def _position(self, id: ClientId) -> int | None:
        position = bisect.bisect_left(self.ids, id)
        return position if position < len(self.ids) and self.ids[position] == id else None


def as_clients(
    clients: Sequence[Client] | Mapping[str, Any], dtype: torch.dtype = torch.float32
) -> Mapping[ClientId, Client]:
    """Clients by id, sorted by id, from a list of clients, {id: data} or a population.

    Their data are for models of this floating-point type.
    """
    if isinstance(clients, Population):
        return clients.to(dtype)
    if isinstance(clients, Mapping):
        clients = [_as_client(id, data) for id, data in clients.items()]
    for client in clients:
        if not isinstance(client, Client):
            raise InputError(
                f"clients must be sy.Client objects or {{name: data}}, not {type(client).__name__}."
            )
    ordered = sorted(clients, key=lambda client: client.id)
    _check_ids([client.id for client in ordered])
    found = {client.id: _not_empty(client).to(dtype) for client in ordered}
    form = _common_form(found)
    if form is None:
        return found
    return {
        id: client if client.model is not None else client.with_form(form) for id, client in found.items()
    }


def in_form_of(clients: Mapping[ClientId, Client], test: AnyExamples | None) -> AnyExamples | None:
    """A common test set with its columns in the order of the clients' columns."""
    if test is None or test.columns is None:
        return test
    form = _form_of_population(clients) if isinstance(clients, Population) else _common_form(clients)
    return test if form is None else form.fit(test, "the test set")


def _common_form(clients: Mapping[ClientId, Client]) -> FrameForm | None:
    """The columns of the first client whose data came from a frame, for clients that share a model."""
    shared = [client for client in clients.values() if client.model is None and client.form is not None]
    if not shared:
        return None
    return form_of([part for client in shared for part in client.parts.values()], f"client {shared[0].id!r}")


def _form_of_population(clients: Population) -> FrameForm | None:
    with suppress(Exception):  # a client that cannot be created fails by name in a round
        clients[clients.ids[0]]
    return clients.form


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
