"""What a rule remembers of each pair of clients: a running mean, for the clients that were seen last."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.types import ClientId, State

MOST = 1000  # clients whose pairs are remembered, unless more take part in one round


class Pairs(NamedTuple):
    """Sums over rounds for each pair, and how many rounds they are sums of; those seen last come first."""

    clients: tuple[ClientId, ...]
    total: Tensor
    rounds: Tensor

    @classmethod
    def of(cls, state: State) -> "Pairs":
        if "pair_clients" not in state:
            empty = torch.zeros(0, 0, dtype=torch.float64)
            return cls((), empty, empty)
        names = bytes(state["pair_clients"].tolist()).decode().split("\0")
        return cls(tuple(names), state["pair_total"], state["pair_rounds"])

    def state(self) -> State:
        names = torch.tensor(list("\0".join(self.clients).encode()), dtype=torch.uint8)
        return {"pair_clients": names, "pair_total": self.total, "pair_rounds": self.rounds}

    def updated(self, clients: Sequence[ClientId], values: Tensor, memory: float) -> "Pairs":
        """With the values [J, J] of one more round; of what was, `memory` is kept."""
        present = set(clients)
        absent = [client for client in self.clients if client not in present]
        names = (*clients, *absent)[: max(MOST, len(clients))]
        place = {client: number for number, client in enumerate(self.clients)}
        known = [(new, place[client]) for new, client in enumerate(names) if client in place]
        total = torch.zeros(len(names), len(names), dtype=torch.float64)
        rounds = torch.zeros_like(total)
        if known:
            new, old = (torch.tensor(column) for column in zip(*known, strict=True))
            total[new.unsqueeze(1), new] = self.total[old.unsqueeze(1), old]
            rounds[new.unsqueeze(1), new] = self.rounds[old.unsqueeze(1), old]
        here = slice(0, len(clients))
        total[here, here] = memory * total[here, here] + values
        rounds[here, here] = memory * rounds[here, here] + 1
        return Pairs(names, total, rounds)

    def mean(self, count: int) -> Tensor:
        """The running means of the `count` clients seen last."""
        return self.total[:count, :count] / self.rounds[:count, :count]
