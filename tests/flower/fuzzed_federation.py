"""A federation of two honest clients and hostile ones, whose answers are fuzzed on their way."""

import json
import math
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from fake_link import LinkChannel, Sent, reply
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from hostile_contents import CONTENTS, HEAVY, MESSAGES, RECORDS
from hostile_headers import ARRAYS, HEADERS, TEXTS, Change
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.flower import messages, wire
from steelyard.flower.remote import RemoteSites
from steelyard.metrics.scores import Scores
from steelyard.runs.reader import Run
from steelyard.runs.writer import Recorder
from steelyard.seeds import generator
from steelyard.server.federation import Federation
from steelyard.server.reasons import MAX_REASON
from steelyard.settings import Server
from steelyard.sites import Answer, Profile, Request
from steelyard.threads import one_thread
from steelyard.types import Broadcast, Failure, Message, Reply

CLASSES = 3
HONEST = ("ada", "bob")
GROUPS = (HEADERS, TEXTS, ARRAYS, RECORDS, MESSAGES, CONTENTS)
OWN = ("status", "num_examples", "loss", "steps", "norm", "accuracy", "evaluation")
"""What the row of a client says that no other client may change."""


def honest_answer(client: str, request: Request) -> Answer:
    """An update of length about 1, and scores; round and name determine them, and no two share a piece."""
    draw = generator(1, request.broadcast.round, client, "honest")
    mean = torch.randn(request.broadcast.message.mean.shape, generator=draw)
    loss, right = float(torch.rand((), generator=draw)), float(torch.randint(5, 21, (), generator=draw))
    sent = Reply(client, Message(mean / 3), 5 + int(right), {"loss": loss, "steps": 3.0})
    scores = {"test": Scores(np.array([20.0, right, loss, 4.0, 0.0]), CLASSES)}
    return Answer(client, sent if request.train else None, scores if request.evaluate else {})


def profile(client: str) -> Profile:
    return Profile(client, 10, ((CLASSES, 2), (CLASSES,)), 36)


class ServerTest:
    """A test set of the server's own, with the same scores for every model."""

    def scores(self, model: Message, temperature: float = 1.0) -> Scores:
        bins, confusion = np.zeros((3, 15)), np.zeros((CLASSES, CLASSES))
        bins[:, 7], confusion[0, 0] = (20, 9, 12), 20
        return Scores(np.concatenate([[20.0, 12.0, 9.0, 4.0, 0.0], bins.ravel(), confusion.ravel()]), CLASSES)


class LocalSites:
    """The same clients in this process; the hostile ones fail."""

    about = "local"

    def __init__(self, clients: Sequence[str]) -> None:
        self.clients = tuple(clients)

    def profiles(self, clients: Sequence[str]) -> Mapping[str, Profile]:
        return {client: profile(client) for client in clients}

    def ask(
        self,
        broadcast: Broadcast,
        train: Sequence[str],
        evaluate: Sequence[str] = (),
        *,
        detail: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Answer | Failure]:
        for client in sorted({*train, *evaluate}):
            if client not in HONEST:
                yield Failure(client, "training", "gave up")
            else:
                yield honest_answer(client, Request(broadcast, client in train, client in evaluate, detail))

    def commit(self, round: int) -> None:
        pass

    def rewind(self, round: int) -> None:
        pass


class Fuzzer:
    """Answers questions: those to hostile clients with up to three changes to what is honest."""

    def __init__(self, seed: int) -> None:
        self.draw, self.answers, self.not_finite = Random(seed), 0, 0
        self.made: dict[tuple[int, str], list[str]] = {}
        """The changes in the last answer of each hostile client in each round, by name."""
        self.refused: set[tuple[int, str]] = set()
        """Those that must not be used."""

    def __call__(self, client: str, question: RecordDict, id: str) -> RecordDict | list[Sent]:
        parcel = wire.from_records(question)
        envelope = messages.envelope_of(parcel.header)
        if not envelope.round:
            return wire.to_records(messages.answer_parcel(envelope, profile(client)))
        request, _ = messages.read_request(parcel)
        self.not_finite += not bool(request.broadcast.message.mean.isfinite().all())
        answer = messages.answer_parcel(envelope, honest_answer(client, request))
        if client in HONEST:
            return wire.to_records(answer)
        if not request.train:
            failed = messages.answer_parcel(envelope, Failure(client, "training", "gave up"))
            return wire.to_records(failed)
        return list(self.hostile(answer, id))

    def hostile(self, answer: wire.Parcel, id: str) -> Iterator[Sent]:
        """Fuzzed replies: one, or more if the first are no replies to the question."""
        while True:
            self.answers += 1
            made = self.changes()
            sent = self.changed(answer, id, made)
            place = (answer.header["round"], answer.header["client"])
            self.made[place] = [each.name for each in made]
            self.refused.discard(place)
            if len(made) == 1 and made[0].refused:
                self.refused.add(place)
            yield sent
            if sent.proto.metadata.reply_to_message_id == id:
                return

    def changes(self) -> list[Change]:
        if self.draw.random() < 0.004:
            return [self.draw.choice(HEAVY)]
        number = self.draw.choice((1, 1, 1, 1, 2, 3))
        return [self.draw.choice(self.draw.choice(GROUPS)) for _ in range(number)]

    def changed(self, answer: wire.Parcel, id: str, made: list[Change]) -> Sent:
        """The answer with changes, each where it belongs."""
        header = json.loads(json.dumps(dict(answer.header)))
        arrays = dict(wire.array_record(answer.arrays).items())
        self.apply(made, HEADERS + ARRAYS, header, arrays)
        text = self.apply(made, TEXTS, json.dumps(header))[0]
        records = {"header": ConfigRecord({"json": text}), "arrays": ArrayRecord(arrays)}
        self.apply(made, RECORDS, records)
        sent: Sent = self.apply(made, MESSAGES, reply(RecordDict(records), id))[0]
        self.apply(made, CONTENTS + HEAVY, sent)
        return sent

    def apply(self, made: list[Change], group: tuple[Change, ...], *parts: Any) -> tuple[Any, ...]:
        """The parts with those changes that belong to a group; some change them, others return a new one."""
        for each in made:
            if each in group:
                with suppress(
                    *([] if len(made) == 1 else [Exception])
                ):  # another change left no place for it
                    found = each.make(self.draw, *parts)
                    parts = parts if found is None or len(parts) > 1 else (found,)
        return parts


class Findings(NamedTuple):
    answers: int
    used: int
    unscored: int
    megabytes: float
    """By which the most memory that the process ever had has grown."""
    wrongly_used: list[Any]
    changed: int
    """Rows of honest clients that differ from those of the run in which the hostile ones fail."""
    bad_texts: list[str]
    """Reasons that are empty, too long, or have characters that cannot be printed."""
    not_finite: int
    """Models and metrics of rounds."""
    missing: int
    """Rows of hostile clients that are not there, and rows of no client."""


def names(hostile: int) -> list[str]:
    return [*HONEST, *(f"eve-{number:02d}" for number in range(hostile))]


def recorded_run(path: Path, sites: Any, rounds: int) -> Run:
    torch.manual_seed(0)
    algorithm = Algorithm(server=Server(quorum=0.0))
    federation = Federation(
        sites, algorithm, nn.Linear(2, CLASSES), test=ServerTest(), rounds=rounds, classes=CLASSES
    )
    with Recorder(path) as recorder, one_thread():
        federation.run(keeper=recorder)
    return Run(path)


def fuzz(folder: Path, rounds: int, hostile: int, seed: int) -> Findings:
    """Run with hostile clients, and again with the same clients failing, and compare the records."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzzer, clients = Fuzzer(seed), names(hostile)
    channel = LinkChannel(clients, fuzzer)
    sites = RemoteSites(clients, channel, "a spec", "0" * 32, folder / "kept")
    try:
        attacked = recorded_run(folder / "attacked", sites, rounds)
    finally:
        channel.close()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return compare(attacked, recorded_run(folder / "clean", LocalSites(clients), rounds), fuzzer, grown)


def compare(attacked: Run, clean: Run, fuzzer: Fuzzer, megabytes: float) -> Findings:
    rows = {(row["round"], row["client"]): row for row in attacked.clients}
    theirs = {place: row for place, row in rows.items() if place[1] not in HONEST}
    used = {place for place, row in theirs.items() if row["status"] == "used"}
    mixed = {round for round, _ in used}
    wanted = {(row["round"], row["client"]): row for row in clean.clients}
    texts = [
        text for row in theirs.values() for text in (row["status"], row.get("evaluation")) if text is not None
    ]
    numbers = [value for row in attacked.rounds for value in row.values() if value is not None]
    return Findings(
        fuzzer.answers,
        len(used),
        sum(row.get("evaluation") is not None for row in theirs.values()),
        megabytes,
        [(*place, fuzzer.made[place]) for place in sorted(used & fuzzer.refused)],
        sum(
            _differ(rows.get(place, {}), row, place[0] in mixed)
            for place, row in wanted.items()
            if place[1] in HONEST
        ),
        [text for text in texts if not text.isprintable() or not 0 < len(text) <= MAX_REASON],
        fuzzer.not_finite + sum(not math.isfinite(value) for value in numbers),
        len(rows.keys() ^ wanted.keys()) + len(attacked.clients) - len(rows),
    )


def _differ(row: Mapping[str, Any], wanted: Mapping[str, Any], mixed: bool) -> bool:
    """Whether two rows differ; if a hostile client took part, in what is the client's own."""
    names = OWN if mixed else {*row, *wanted}
    return any(row.get(name) != wanted.get(name) for name in names)
