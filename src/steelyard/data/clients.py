"""The clients of a federation, by id."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import torch

from steelyard.data.client import Client, as_client, input_dtype, not_empty
from steelyard.data.data_frames import FrameForm, form_of
from steelyard.data.examples import Examples
from steelyard.data.population import Population, check_ids
from steelyard.errors import InputError
from steelyard.types import ClientId

__all__ = ["Client", "Population", "as_clients", "in_form_of", "in_order_of", "input_dtype"]

T = TypeVar("T")


def as_clients(
    clients: Sequence[Client] | Mapping[str, Any],
    dtype: torch.dtype = torch.float32,
    columns: Sequence[str] | None = None,
) -> Mapping[ClientId, Client]:
    """Clients by id, sorted by id, from a list of clients, {id: data} or a population.

    Their data are for models of this floating-point type. Frames have the `columns` in this order or, by
    default, in that of the first client's frame.
    """
    if isinstance(clients, Population):
        return clients.to(dtype).with_columns(columns)
    if isinstance(clients, Mapping):
        clients = [as_client(id, data) for id, data in clients.items()]
    if not isinstance(clients, Iterable):
        raise InputError(f"clients must be sy.Client objects or {{name: data}}, not {clients!r}.")
    for client in clients:
        if not isinstance(client, Client):
            raise InputError(
                f"clients must be sy.Client objects or {{name: data}}, not {type(client).__name__}."
            )
    ordered = sorted(clients, key=lambda client: client.id)
    check_ids([client.id for client in ordered])
    found = {client.id: not_empty(client).to(dtype) for client in ordered}
    form = _common_form(found)
    if form is None:
        return found
    form = form.ordered(columns)
    return {
        id: client if client.model is not None else client.with_form(form) for id, client in found.items()
    }


def in_form_of(
    clients: Mapping[ClientId, Client],
    data: T,
    where: str = "the test set",
    columns: Sequence[str] | None = None,
) -> T:
    """Data of the server's own with their columns in the order of the clients' columns.

    Data that do not come from a frame, or anything else, are returned as they are.
    """
    if not isinstance(data, Examples) or data.columns is None:
        return data
    form = _form_of_population(clients) if isinstance(clients, Population) else _common_form(clients)
    return in_order_of(columns, data, where) if form is None else form.fit(data, where)


def in_order_of(columns: Sequence[str] | None, data: T, where: str) -> T:
    """Data with the columns of their frame in this order, if they come from a frame."""
    form = None if columns is None else form_of([data], where)
    return data if form is None else form.ordered(columns).fit(data, where)


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
