"""Sites of which some attack: a wrapper, so that servers, rules and engines see clients like any others.

An adversary does a client's honest work; then what it sends is replaced, running statistics included. It
knows what every honest client of the round sends.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from steelyard.attacks.base import Attack, Scene
from steelyard.components import component
from steelyard.errors import InputError, unknown
from steelyard.metrics.detection import detection
from steelyard.seeds import generator
from steelyard.sites import Answer, Profile, ScoreTable, Sites
from steelyard.texts import shown
from steelyard.types import Broadcast, ClientId, Failure, Reply, Round

Adversaries = Mapping[ClientId, Attack]


def named_attacks(
    adversaries: Mapping[str, Any] | None, clients: Iterable[ClientId], seed: int
) -> dict[ClientId, Attack]:
    """Adversaries with their attacks, which may be given by name.

    `{"count": 2, "attack": "sign-flip"}`, as in a spec, draws them from the seed.
    """
    if adversaries is None:
        return {}
    if not isinstance(adversaries, Mapping):
        raise InputError(
            "adversaries must be a table of clients and their attacks, such as {'oslo': 'sign-flip'}, or "
            f"{{'count': 2, 'attack': 'sign-flip'}}, not {shown(adversaries)}."
        )
    if "count" in adversaries and "count" not in (ids := tuple(clients)):
        return _counted(ids, seed, adversaries)
    return {
        client: component(f"adversaries[{client!r}]", "attacks", Attack, attack)
        for client, attack in adversaries.items()
    }


def draw_adversaries(clients: Sequence[ClientId], count: int, seed: int) -> tuple[ClientId, ...]:
    """So many clients, drawn from a seed, in their order."""
    drawn = torch.randperm(len(clients), generator=generator(seed, "adversaries"))
    return tuple(clients[place] for place in drawn[:count].sort().values)


def _counted(clients: Sequence[ClientId], seed: int, settings: Mapping[str, Any]) -> dict[ClientId, Attack]:
    """So many adversaries with one attack, as in a spec."""
    for name in settings:
        if name == "extra":
            raise InputError("adversaries.extra is for specs; give the federation more clients instead.")
        if name not in ("count", "attack"):
            raise unknown("setting", name, ("count", "attack"), of="adversaries")
    count = settings["count"]
    if type(count) is not int or not 0 <= count <= len(clients):
        raise InputError(
            f"adversaries.count must be a whole number from 0 to {len(clients)}, the number of clients, not "
            f"{shown(count)}."
        )
    attack = component("adversaries.attack", "attacks", Attack, settings.get("attack", "sign-flip"))
    return dict.fromkeys(draw_adversaries(clients, count, seed), attack)


class Attacked:
    """Sites whose adversaries replace what they send."""

    def __init__(self, sites: Sites, adversaries: Adversaries, seed: int) -> None:
        self.sites, self.adversaries, self.seed = sites, adversaries, seed

    @property
    def clients(self) -> tuple[ClientId, ...]:
        return self.sites.clients

    @property
    def about(self) -> str:
        return self.sites.about

    def profiles(self, clients: Sequence[ClientId]) -> Mapping[ClientId, Profile]:
        return self.sites.profiles(clients)

    def ask(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        evaluate: Sequence[ClientId] = (),
        *,
        detail: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Answer | ScoreTable | Failure]:
        replies: dict[ClientId, Reply] = {}
        scores: dict[ClientId, Answer] = {}
        for answer in self.sites.ask(broadcast, train, evaluate, detail=detail, seconds=seconds):
            if not isinstance(answer, Answer) or answer.reply is None:
                yield answer
            else:
                replies[answer.client], scores[answer.client] = answer.reply, answer
        for client, reply in attacked(replies, self.adversaries, broadcast.round, self.seed).items():
            yield scores[client]._replace(reply=reply)

    def commit(self, round: int) -> None:
        self.sites.commit(round)

    def rewind(self, round: int) -> None:
        self.sites.rewind(round)


def attacked(
    replies: Mapping[ClientId, Reply], adversaries: Adversaries, round: int, seed: int
) -> dict[ClientId, Reply]:
    """The replies of a round, with those of the adversaries replaced."""
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


def _honest(replies: Mapping[ClientId, Reply], adversaries: Adversaries) -> Tensor:
    """The finite updates of the honest clients, [H, K], in the order of their ids."""
    order = sorted(replies)
    first = replies[order[0]].message.mean
    updates = (replies[client].message.mean.unsqueeze(0) for client in order if client not in adversaries)
    finite = (update for update in updates if bool(update.isfinite().all()))
    return torch.cat([first.new_empty(0, len(first)), *finite])


def check_adversaries(adversaries: Adversaries, clients: Iterable[ClientId], slots: frozenset[str]) -> None:
    """Refuse adversaries that are not clients, and attacks on what does not travel."""
    ids = set(clients)
    for client, attack in adversaries.items():
        if client not in ids:
            raise unknown("client", client, ids, of="adversaries")
        if not isinstance(attack, Attack):
            raise InputError(
                f"the attack of {client!r} must be one of steelyard.attacks, not {type(attack).__name__}."
            )
        if missing := attack.needs - slots:
            raise InputError(
                f"attack {type(attack).__name__} needs the {' and '.join(sorted(missing))} of every client, "
                "which is not sent; choose another attack or another sharing."
            )


def mark_adversaries(round: Round, adversaries: Collection[ClientId]) -> Round:
    """The record of a round with its adversaries marked, and with how well low weights tell them apart."""
    rows = [{**row, "adversary": int(str(row["client"]) in adversaries)} for row in round.clients]
    invited = [row for row in rows if row["status"] != "idle"]
    metrics = dict(round.metrics)
    if metrics.get("used"):
        weights = torch.tensor([row.get("weight") or 0.0 for row in invited], dtype=torch.float64)
        hostile = torch.tensor([bool(row["adversary"]) for row in invited])
        metrics |= detection(weights, hostile)
    return replace(round, metrics=metrics, clients=tuple(rows))
