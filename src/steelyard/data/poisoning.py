"""Clients with poisoned training labels, for attacks that change what a client trains on."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steelyard.attacks import Attack
from steelyard.data.batches import whole_as_int64
from steelyard.data.clients import Client, Population
from steelyard.data.examples import ArrayExamples, Examples
from steelyard.errors import InputError
from steelyard.seeds import generator
from steelyard.types import ClientId


def poisoned(
    clients: Mapping[ClientId, Client], adversaries: Mapping[ClientId, Attack], num_classes: int, seed: int
) -> Mapping[ClientId, Client]:
    """The clients, with poisoned labels where the attack changes labels; test data stay as they are."""
    attacks = {client: attack for client, attack in adversaries.items() if attack.poisons}
    if not attacks:
        return clients
    poison = Poison(clients, attacks, num_classes, seed)
    if not isinstance(clients, Population):
        return {client: poison(client) for client in clients}
    _try_one(poison, min(attacks))
    sizes = [clients.size(client) for client in clients]
    return Population(clients.ids, poison, sizes, clients.keep).to(clients.dtype)


@dataclass(frozen=True, eq=False)
class Poison:
    """Makes a client, with poisoned labels if it attacks. It is small, and goes to worker processes."""

    clients: Mapping[ClientId, Client]
    attacks: Mapping[ClientId, Attack]
    num_classes: int
    seed: int

    @property
    def own_code(self) -> bool:
        return not isinstance(self.clients, Population) or self.clients.own_code

    def __call__(self, id: ClientId) -> Client:
        # The poisoned population keeps its clients; the one below need not keep them too.
        client = self.clients.create(id) if isinstance(self.clients, Population) else self.clients[id]
        if id not in self.attacks:
            return client
        data = client.train
        attack = self.attacks[id]
        if not isinstance(data, Examples | ArrayExamples) or not _are_classes(data.targets):
            raise InputError(
                f"attack {type(attack).__name__} cannot change the labels of client {id!r}; give it (inputs, "
                "targets) or a data frame with class numbers, not a torch Dataset or a loader, or choose "
                "another attack."
            )
        assert data.targets is not None
        draw = generator(self.seed, id, "poison")
        targets = whole_as_int64(data.targets).clone()  # other clients share the table
        labels = data.labels
        changed = attack.poison(labels, self.num_classes, draw)
        targets[data.rows] = changed.where(labels >= 0, labels)  # tokens that are not scored have -100
        client = copy.copy(client)
        client.train = replace(data, targets=targets)
        return client


def _are_classes(targets: Tensor | None) -> bool:
    return targets is not None and not targets.is_floating_point() and targets.dtype != torch.bool


def _try_one(poison: Poison, id: ClientId) -> None:
    """Refuse an attack that cannot poison; a client that cannot be made will fail when it trains."""
    try:
        poison(id)
    except InputError:
        raise
    except Exception:
        pass
