"""Clients as a function changes them: some examples held out, or labels poisoned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from steelyard.data.clients import Client, Population
from steelyard.types import ClientId

Change = Callable[[ClientId, Client], Client]


def with_each_changed(
    clients: Mapping[ClientId, Client],
    change: Change,
    sizes: Sequence[int] | None = None,
) -> Mapping[ClientId, Client]:
    """The clients, each as `change` returns it; those of a population are changed when they are created.

    `sizes` are the numbers of training examples after the change, in the order of the clients (default: as
    before). The change goes to worker processes with the population, so it should be small.
    """
    if not isinstance(clients, Population):
        return {id: change(id, client) for id, client in clients.items()}
    found = [clients.size(id) for id in clients] if sizes is None else sizes
    return Population(clients.ids, Changed(clients, change), found, clients.keep).to(clients.dtype)


@dataclass(frozen=True, eq=False)
class Changed:
    """Creates the clients of another population, each with a change."""

    clients: Population
    change: Change

    @property
    def own_code(self) -> bool:
        return self.clients.own_code

    def __call__(self, id: ClientId) -> Client:
        # The new population keeps its clients; the one below need not keep them too.
        return self.change(id, self.clients.create(id))
