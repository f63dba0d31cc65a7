"""A running mean for each pair of clients, kept in a rule's state for the most recently seen clients."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.types import ClientId, State

MAX_CLIENTS = 1000  # whose pairs are remembered, unless more take part in one round


class Pairs(NamedTuple):
    """Sums and (discounted) numbers of rounds for each pair. The most recently seen clients come first."""

    clients: tuple[ClientId, ...]
    total: Tensor
    """[N, N] for the N remembered clients."""
    rounds: Tensor
    """[N, N]."""

    @classmethod
    def of(cls, state: State) -> "Pairs":
        if "pair_clients" not in state:
            empty = torch.zeros(0, 0, dtype=torch.float64)
            return cls((), empty, empty)
        names = json.loads(bytes(state["pair_clients"].tolist()))
        return cls(tuple(names), state["pair_total"], state["pair_rounds"])

    def state(self) -> State:
        names = torch.tensor(list(json.dumps(self.clients).encode()), dtype=torch.uint8)
        return {"pair_clients": names, "pair_total": self.total, "pair_rounds": self.rounds}

    def updated(self, clients: Sequence[ClientId], values: Tensor, memory: float) -> "Pairs":
        """With the values [J, J] of one more round. Earlier rounds of these pairs are scaled by `memory`."""
        present = set(clients)
        absent = [client for client in self.clients if client not in present]
        names = (*clients, *absent)[: max(MAX_CLIENTS, len(clients))]
        old_rows = {client: row for row, client in enumerate(self.clients)}
        known = [(row, old_rows[client]) for row, client in enumerate(names) if client in old_rows]
        total = torch.zeros(len(names), len(names), dtype=torch.float64)
        rounds = torch.zeros_like(total)
        if known:
            new, old = (torch.tensor(column) for column in zip(*known, strict=True))
            total[new.unsqueeze(1), new] = self.total[old.unsqueeze(1), old]
            rounds[new.unsqueeze(1), new] = self.rounds[old.unsqueeze(1), old]
        seen = slice(0, len(clients))
        total[seen, seen] = memory * total[seen, seen] + values
        rounds[seen, seen] = memory * rounds[seen, seen] + 1
        return Pairs(names, total, rounds)

    def mean(self, count: int) -> Tensor:
        """The running means [count, count] of the first `count` clients."""
        return self.total[:count, :count] / self.rounds[:count, :count]
