"""The boundary where an answer becomes a value: what a client sent leaves here clean, or as a reason.

Nothing that a client sent is used before. Only values of the exact types that are expected are read, so no
code of a client runs here (a subclass, a property, `__eq__`, `__str__`), and an exception means "rejected". A
client is known by the channel that its answer came through: what it sends is held against itself only.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from steelyard.server.reasons import MAX_REASON, one_line
from steelyard.server.reply_screening import screen_replies
from steelyard.server.score_screening import ByClient, ScoreRules, screen_scores, screen_table
from steelyard.sites import Answer, ScoreTable
from steelyard.types import EMPTY, ClientId, Failure, Message, Reply

MAX_STAGE = 40  # characters of what a client says that it was doing when it failed
MAX_FAILURE = MAX_REASON - len("failed while : ") - MAX_STAGE  # characters of the reason that it gives


class Asked(NamedTuple):
    """What the server asked for in one exchange."""

    clients: Sequence[ClientId]
    """All clients of the federation, sorted."""
    train: Sequence[ClientId]
    """The clients that are invited to train."""
    like: Message
    """A message of the right form."""
    max_examples: int
    evaluate: Sequence[ClientId] = ()
    """The clients that are asked for scores."""
    scores: ScoreRules = ScoreRules()


class Exchange(NamedTuple):
    """The answers of one exchange, screened."""

    invited: Sequence[ClientId] = ()
    replies: Sequence[Reply] = ()
    """Usable replies in the order of client ids."""
    rejected: Mapping[ClientId, str] = EMPTY
    """The reason for each client that was invited or sent a reply, and has no usable one."""
    failures: Mapping[ClientId, Failure] = EMPTY
    scores: ByClient = EMPTY
    table: ScoreTable | None = None
    unscored: Mapping[ClientId, str] = EMPTY
    """The reason for each client whose scores, or sums of own metrics, were dropped."""
    strangers: int = 0
    """The number of answers from no client of the federation, or that were no answers at all."""


def screen(asked: Asked, answers: Iterable[object]) -> Exchange:
    """Screen everything that came in one exchange. The order in which it came does not matter."""
    invited, scored = set(asked.train), set(asked.evaluate)
    sent = _by_sender(asked.clients, invited | scored, answers)
    rejected = dict.fromkeys(asked.train, "sent no reply")
    for client in sent.clients:
        reason = ""
        if client in sent.repeated:
            reason = "sent more than one answer"
        elif client not in invited and (client in sent.replies or client not in scored):
            reason = "was not invited to this round"
        elif client in sent.replies:
            del rejected[client]
        if reason:
            rejected[client] = reason
            for kept in (sent.replies, sent.scores, sent.failures):
                kept.pop(client, None)
    replies, faults = screen_replies(sent.replies, asked.like, asked.max_examples)
    table, unscored = screen_table(sent.tables, scored, asked.scores)
    scores, dropped = screen_scores(sent.scores, scored, table, asked.scores)
    strangers = sent.strangers + len(sent.tables) - (table is not None)
    rejected, unscored = rejected | faults, unscored | dropped
    return Exchange(asked.train, replies, rejected, sent.failures, scores, table, unscored, strangers)


@dataclass(eq=False)
class _Sent:
    """What came, by sender, and not looked into."""

    clients: set[ClientId] = field(default_factory=set)
    repeated: set[ClientId] = field(default_factory=set)
    """Clients that sent several answers."""
    replies: dict[ClientId, object] = field(default_factory=dict)
    scores: dict[ClientId, object] = field(default_factory=dict)
    failures: dict[ClientId, Failure] = field(default_factory=dict)
    tables: list[ScoreTable] = field(default_factory=list)
    strangers: int = 0


def _by_sender(clients: Sequence[ClientId], asked: Collection[ClientId], answers: Iterable[object]) -> _Sent:
    sent = _Sent()
    for answer in answers:
        if type(answer) is ScoreTable:
            sent.tables.append(answer)
            continue
        opened = _opened(answer)
        if opened is None or not (opened.client in asked or _is_among(clients, opened.client)):
            sent.strangers += 1
            continue
        client = opened.client
        if client in sent.clients:
            sent.repeated.add(client)
        sent.clients.add(client)
        sent.scores[client] = opened.scores
        if type(opened) is Failure:
            sent.failures[client] = opened
        elif type(opened) is Answer and opened.reply is not None:
            sent.replies[client] = opened.reply
    return sent


def _opened(answer: object) -> Answer | Failure | None:
    """An answer with the id of its sender; reply and scores are not looked into. None if it is no answer."""
    if type(answer) is Answer and len(answer) == len(Answer._fields) and type(answer.client) is str:
        return answer
    if type(answer) is not Failure:
        return None
    try:
        client, scores = answer.client, answer.scores
        stage, reason = one_line(answer.stage, MAX_STAGE), one_line(answer.reason, MAX_FAILURE)
        return Failure(client, stage, reason, scores) if type(client) is str else None
    except AttributeError:
        return None


def _is_among(clients: Sequence[ClientId], client: ClientId) -> bool:
    place = bisect_left(clients, client)
    return place < len(clients) and clients[place] == client
