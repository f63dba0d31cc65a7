"""A SuperLink in memory: answers are read by the real channel, out of the pieces that a site sent."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from flwr.app import Error, Message, Metadata, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)

from steelyard.flower.channel import SERVER_NODE, Problem, TaskChannel
from steelyard.flower.runtime import MESSAGE_TYPE, TaskConnection

RUN = 7


@dataclass
class Sent:
    """A reply as it lies at the SuperLink."""

    proto: Any
    tree: ObjectTree
    contents: dict[str, bytes]
    late: int = 0
    """How often the server looks before the last piece is there."""

    @property
    def message_id(self) -> str:
        return str(self.proto.metadata.message_id)


def deflated(message: Message) -> Sent:
    """A message in pieces, as Flower sends it."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        contents = {id: each.deflate() for id, each in get_all_nested_objects(message).items()}
        bare = remove_content_from_message(message) if message.has_content() else message
        return Sent(message_to_proto(bare), get_object_tree(message), contents)


def reply(records: RecordDict | Error, reply_to: str) -> Sent:
    metadata = Metadata(RUN, "", 2, SERVER_NODE, reply_to, "", 1.8e9, 60.0, MESSAGE_TYPE)
    kind = "error" if isinstance(records, Error) else "content"
    return deflated(Message(metadata=metadata, **{kind: records}))  # type: ignore[call-overload]


@dataclass
class FakeLink:
    """The calls of Flower's client that the server uses to receive; `replies` wait by question.

    Flower stores a piece under the hash of its bytes. Here, a hostile site may give it another id: the server
    must not rely on that. So no two messages may share a piece.
    """

    replies: dict[str, list[Sent]] = field(default_factory=dict)
    pieces: dict[str, bytes] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    confirmed: list[str] = field(default_factory=list)

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        found = [self.replies[id].pop(0) for id in request.message_ids if self.replies.get(id)]
        for sent in found:
            if sent.proto.metadata.reply_to_message_id in request.message_ids:
                self.pieces |= sent.contents
            self.late |= {next(iter(sent.contents), ""): sent.late} if sent.late else {}
        return SimpleNamespace(
            messages_list=[sent.proto for sent in found], message_object_trees=[sent.tree for sent in found]
        )

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        id = request.object_id
        self.late[id] = self.late.get(id, 0) - 1
        return SimpleNamespace(
            object_found=id in self.pieces,
            object_available=self.late[id] < 0,
            object_content=self.pieces.get(id, b""),
        )

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        self.confirmed.append(request.message_object_id)

    def SendTaskHeartbeat(self, request: Any) -> None:  # noqa: N802
        pass

    def PushTaskOutput(self, request: Any) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        pass


Answerer = Callable[[str, RecordDict, str], RecordDict | list[Sent]]
"""(client, question, its id) -> what the site sends: pieces, one message after the other, or whole."""


class LinkChannel(TaskChannel):
    """The real channel on a SuperLink in memory; the sites answer at once."""

    def __init__(self, clients: list[str], answer: Answerer) -> None:
        super().__init__()
        self.link, self.answer, self.count = FakeLink(), answer, 0
        self.whole: dict[str, RecordDict | Problem] = {}
        self.task = TaskConnection(self.link, RUN)  # type: ignore[arg-type]
        self.nodes = dict(enumerate(clients, SERVER_NODE + 1))

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(self.nodes.values(), "since today")

    def send(self, questions: Mapping[str, RecordDict], seconds: float) -> dict[str, str]:
        self.link.pieces, self.link.late = {}, {}
        ids = {}
        for client, question in questions.items():
            self.count += 1
            ids[client] = f"question {self.count}"
            found = self.answer(client, question, ids[client])
            if isinstance(found, RecordDict):
                self.whole[ids[client]] = found
            else:
                self.link.replies[ids[client]] = found
        return ids

    def receive(self, ids: Collection[str], max_bytes: float) -> dict[str, RecordDict | Problem]:
        whole = {id: self.whole.pop(id) for id in ids if id in self.whole}
        return whole | super().receive({*ids} - whole.keys(), max_bytes)

    def reopen(self) -> None:
        raise AssertionError("the connection was never lost")
