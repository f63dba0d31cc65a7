"""What turns some clients of a federation into adversaries; nobody else knows which.

Their training labels are poisoned before the first round, and after the training of every round their replies
are replaced, running statistics included. Servers, rules and engines see clients like any others.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from steelyard.attacks import Attack
from steelyard.attacks.base import Scene
from steelyard.data.clients import Client, Population
from steelyard.data.examples import Examples
from steelyard.errors import InputError, unknown
from steelyard.seeds import generator
from steelyard.types import ClientId, Reply

Adversaries = Mapping[ClientId, Attack]


def check_adversaries(
    adversaries: Adversaries, clients: Mapping[ClientId, Client], slots: frozenset[str]
) -> None:
    """Refuse adversaries that are not there, and attacks on what does not travel."""
    for client, attack in adversaries.items():
        if client not in clients:
            raise unknown("client", client, clients, of="adversaries")
        if not isinstance(attack, Attack):
            raise InputError(
                f"the attack of {client!r} must be one of steelyard.attacks, not {type(attack).__name__}."
            )
        if missing := attack.needs - slots:
            raise InputError(
                f"attack {type(attack).__name__} needs the {' and '.join(sorted(missing))} of every client, "
                "which is not sent; choose another attack or another sharing."
            )


def poisoned(
    clients: Mapping[ClientId, Client], adversaries: Adversaries, num_classes: int, seed: int
) -> Mapping[ClientId, Client]:
    """The clients, with poisoned labels for those whose attack asks for it; what they are tested on stays."""
    attacks = {client: attack for client, attack in adversaries.items() if attack.poisons}
    if not attacks:
        return clients
    poison = Poison(clients, attacks, num_classes, seed)
    if not isinstance(clients, Population):
        return {client: poison(client) for client in clients}
    _look_at(poison, min(attacks))
    return Population(clients.ids, poison, [clients.size(client) for client in clients])


@dataclass(frozen=True, eq=False)
class Poison:
    """Makes a client as it is in a federation with adversaries. It is small, and goes to worker processes."""

    clients: Mapping[ClientId, Client]
    attacks: Adversaries
    num_classes: int
    seed: int

    def __call__(self, id: ClientId) -> Client:
        client = self.clients[id]
        if id not in self.attacks:
            return client
        data = client.train
        if not isinstance(data, Examples) or data.targets.is_floating_point():
            raise InputError(
                f"attack {type(self.attacks[id]).__name__} cannot change the labels of client {id!r}; give "
                "it (inputs, targets) with class numbers, not a torch Dataset, or choose another attack."
            )
        draw = generator(self.seed, id, "poison")
        targets = data.targets.clone()  # the table belongs to everybody
        targets[data.rows] = self.attacks[id].poison(data.labels, self.num_classes, draw)
        client = copy.copy(client)
        client.train = replace(data, targets=targets)
        return client


def _look_at(poison: Poison, id: ClientId) -> None:
    """What is wrong with an attack on a population shows now; who cannot be made will fail when it trains."""
    try:
        poison(id)
    except InputError:
        raise
    except Exception:
        pass


def attacked(
    replies: Mapping[ClientId, Reply], adversaries: Adversaries, round: int, seed: int
) -> dict[ClientId, Reply]:
    """The replies of a round as they arrive: those of its adversaries replaced, the others untouched."""
    present = sorted(replies.keys() & adversaries.keys())
    if not present:
        return dict(replies)
    scene = Scene(_honest(replies, adversaries), len(present), round)
    sent = {}
    for client in present:
        attack = adversaries[client]
        drawn_by = "adversaries" if attack.colludes else client
        sent[client] = attack.reply(scene, replies[client], generator(seed, round, drawn_by, "attack"))
    return {**replies, **sent}


def _honest(replies: Mapping[ClientId, Reply], adversaries: Adversaries) -> torch.Tensor:
    """The finite updates of the honest, [H, K], in the order of their ids, whoever was done first."""
    order = sorted(replies)
    nobody = replies[order[0]].message.mean.new_empty(0, len(replies[order[0]].message.mean))
    updates = (replies[client].message.mean.unsqueeze(0) for client in order if client not in adversaries)
    return torch.cat([nobody, *(update for update in updates if bool(update.isfinite().all()))])
