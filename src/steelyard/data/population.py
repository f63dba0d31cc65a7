"""Clients that are created when they are needed."""

import bisect
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from steelyard.data.client import Client, as_client
from steelyard.data.data_frames import FrameForm
from steelyard.errors import InputError
from steelyard.seeds import seeded
from steelyard.types import ClientId

KEPT_CLIENTS = 4096
"""Clients of a population that stay in memory, in all processes of a run together."""


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
        self.columns: Sequence[str] | None = None
        """The order of the columns, if it is not that of the first client."""
        check_ids(self.ids)

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
            client = as_client(id, self._make(id)).to(self.dtype)
        if client.model is not None or client.form is None:
            return client
        self.form = self.form or client.form.ordered(self.columns)
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

    def with_columns(self, columns: Sequence[str] | None) -> "Population":
        """The same population with the columns of frames in this order; None: in that of its first client."""
        if columns is None:
            return self
        changed = copy.copy(self)
        changed.columns, changed.form, changed._recent = columns, None, {}
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


def check_ids(ids: Sequence[ClientId]) -> None:
    if not ids:
        raise InputError("a federation needs at least one client.")
    for id, next_id in itertools.pairwise(ids):
        if id == next_id:
            raise InputError(f"two clients are called {id!r}; give each its own id.")
