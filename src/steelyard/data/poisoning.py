"""Clients with poisoned training labels, for attacks that change what a client trains on."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steelyard.attacks import Attack
from steelyard.data.batches import whole_as_int64
from steelyard.data.changed import with_each_changed
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
    poison = Poison(attacks, num_classes, seed)
    if isinstance(clients, Population):
        _try_one(clients, poison)
    return with_each_changed(clients, poison)


@dataclass(frozen=True, eq=False)
class Poison:
    """Poisons the training labels of clients that attack."""

    attacks: Mapping[ClientId, Attack]
    num_classes: int
    seed: int

    def __call__(self, id: ClientId, client: Client) -> Client:
        if id not in self.attacks:
            return client
        attack = self.attacks[id]
        data = client.train
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


def _try_one(clients: Population, poison: Poison) -> None:
    """Refuse an attack that cannot poison; a client that cannot be created will fail when it trains."""
    first = min(poison.attacks)
    try:
        poison(first, clients.create(first))
    except InputError:
        raise
    except Exception:
        pass
