"""What a rule remembers of each client, by id: one that sits a round out keeps what is known of it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steelyard.types import ClientId, State


def recall(state: State, name: str, clients: Sequence[ClientId], unknown: Tensor) -> Tensor:
    """One row for each client: what was remembered, or `unknown` for those never seen before."""
    return torch.stack([state.get(_key(name, client), unknown) for client in clients])


def remember(state: State, clients: Sequence[ClientId], **rows: Tensor) -> State:
    """The state with new rows for these clients; all others keep theirs."""
    news = {
        _key(name, client): row.clone()
        for name, values in rows.items()
        for client, row in zip(clients, values, strict=True)
    }
    return {**state, **news}


def _key(name: str, client: ClientId) -> str:
    return f"{name}/{client}"
