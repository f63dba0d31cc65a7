"""Per-client rows in a rule's state, by client id. Clients that skip a round keep theirs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steelyard.types import ClientId, State


def recall(state: State, name: str, clients: Sequence[ClientId], unknown: Tensor) -> Tensor:
    """One row per client: the remembered one, or `unknown` for clients not seen before."""
    return torch.stack([state.get(_key(name, client), unknown) for client in clients])


def remember(state: State, clients: Sequence[ClientId], **rows: Tensor) -> State:
    """The state with new rows for these clients; the others keep theirs."""
    updated = {
        _key(name, client): row.clone()
        for name, values in rows.items()
        for client, row in zip(clients, values, strict=True)
    }
    return {**state, **updated}


def _key(name: str, client: ClientId) -> str:
    return f"{name}/{client}"
