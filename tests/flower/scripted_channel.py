"""A channel whose sites do what a script says, question by question."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import RecordDict

from steelyard.flower import messages
from steelyard.flower.channel import LostError, Problem
from steelyard.flower.messages import Envelope
from steelyard.flower.remote import Patience, RemoteSites
from steelyard.flower.wire import Parcel, from_records, to_records
from steelyard.sites import Answer, Profile
from steelyard.types import Broadcast, Failure, Message, Reply

CLIENTS = ("bergen", "oslo")
RUN = "0f" * 16

Step = Any
"""What a site does with a question: "answer"; "nothing"; "lost" (the connection ends when the answer should
come); a Problem; a Parcel; or a function of the question that gives one of them."""


def honest(parcel: Parcel) -> Parcel:
    """The update is the round; the profile has 7 examples."""
    envelope = messages.envelope_of(parcel.header)
    if not envelope.round:
        return messages.answer_parcel(envelope, Profile(envelope.client, 7, ((2,),), 8, torch.tensor([3, 4])))
    reply = Reply(envelope.client, Message(torch.full((2,), float(envelope.round))), 7)
    return messages.answer_parcel(envelope, Answer(envelope.client, reply))


class ScriptedChannel:
    """Each client follows its script; when that has ended, it answers."""

    def __init__(self, clients: Collection[str], **scripts: list[Step]) -> None:
        self.scripts: dict[str, Iterator[Step]] = {name: iter(steps) for name, steps in scripts.items()}
        self.online = dict.fromkeys(clients, "first")
        self.sent: list[tuple[str, Parcel]] = []
        """Every question, in order."""
        self.waiting: dict[str, RecordDict | Problem] = {}
        self.lost, self.reopened, self.seconds = False, 0, 0.0
        self.on_send: Callable[[str], None] = lambda client: None

    @property
    def asked(self) -> list[str]:
        return [client for client, _ in self.sent]

    def headers(self, client: str) -> list[Mapping[str, Any]]:
        return [parcel.header for asked, parcel in self.sent if asked == client]

    def envelopes(self, client: str) -> list[Envelope]:
        return [messages.envelope_of(header) for header in self.headers(client)]

    def connected(self) -> Mapping[str, str]:
        return dict(self.online)

    def send(self, questions: Mapping[str, RecordDict], seconds: float) -> dict[str, str]:
        self.seconds = seconds
        ids = {}
        for client, records in questions.items():
            parcel = from_records(records)
            self.sent.append((client, parcel))
            ids[client] = str(len(self.sent))
            self._do(next(self.scripts.get(client, iter(())), "answer"), ids[client], parcel)
            self.on_send(client)
        return ids

    def _do(self, step: Step, id: str, parcel: Parcel) -> None:
        step = step(parcel) if callable(step) else step
        if step == "answer":
            step = honest(parcel)
        if isinstance(step, Parcel):
            self.waiting[id] = to_records(step)
        elif isinstance(step, Problem | RecordDict):
            self.waiting[id] = step
        self.lost |= step == "lost"

    def receive(self, ids: Collection[str], max_bytes: float) -> dict[str, RecordDict | Problem]:
        if self.lost:
            raise LostError("the connection was lost")
        return {id: self.waiting.pop(id) for id in ids if id in self.waiting}

    def reopen(self) -> None:
        self.lost, self.waiting, self.reopened = False, {}, self.reopened + 1


def sites_of(channel: Any, folder: Path, **settings: Any) -> RemoteSites:
    patience = settings.pop("patience", Patience(round=5.0, offline=5.0, profile=5.0))
    return RemoteSites(CLIENTS, channel, "a spec", RUN, folder, patience, **settings)


def ask(sites: RemoteSites, round: int = 1, seconds: float | None = None) -> dict[str, Answer | Failure]:
    found = [*sites.ask(Broadcast(round, Message(torch.zeros(2))), CLIENTS, seconds=seconds)]
    assert sorted(each.client for each in found) == sorted(CLIENTS), "one answer or failure for each"
    return {each.client: each for each in found}  # type: ignore[misc]


def update(found: Answer | Failure) -> float:
    assert isinstance(found, Answer)
    assert found.reply is not None
    return float(found.reply.message.mean[0])


def reason(found: Answer | Failure) -> str:
    assert type(found) is Failure
    assert found.stage == "answering"
    return found.reason
