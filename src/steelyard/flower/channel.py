"""How the server reaches sites: questions go out by client, answers come back by question."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesRequest

from steelyard.errors import SteelyardError
from steelyard.flower.runtime import (
    MESSAGE_TYPE,
    SERVER_TASK,
    Address,
    ConnectionLost,
    Control,
    TaskConnection,
    TaskSource,
    UnreadableError,
    unfold,
)
from steelyard.types import ClientId

T = TypeVar("T")
PASSING = {
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.CLIENT_APP_CRASHED,
}
"""Errors that asking again can mend."""
SERVER_NODE = 1  # Flower's number for the server
POLL_SECONDS = 0.1


class Problem(NamedTuple):
    """What came in place of an answer."""

    reason: str
    is_passing: bool = False
    """Whether asking again can help."""


class Channel(Protocol):
    """The way to the sites. Every call may raise `LostError`; `reopen` then makes a new connection."""

    def connected(self) -> Mapping[ClientId, str]:
        """The clients whose sites can be reached now, each with its connection: when that changes, the site
        has started anew and forgotten what it was asked."""

    def send(self, questions: Mapping[ClientId, RecordDict], seconds: float) -> dict[ClientId, str]:
        """Send questions that wait at most `seconds`; returns the id of each."""

    def receive(self, ids: Collection[str], max_bytes: float) -> dict[str, RecordDict | Problem]:
        """The answers that have come to these questions; does not wait."""

    def reopen(self) -> None:
        """Connect again, as often as needed; questions that were sent before are lost."""


class LostError(SteelyardError):
    """The connection is gone; what was sent on it will not be answered."""


class TaskChannel:
    """Questions and answers through a task that a SuperLink has given to this process."""

    def __init__(self) -> None:
        self.task: TaskConnection | None = None
        self.nodes: dict[int, ClientId] = {}
        """The client at each of Flower's nodes."""
        self._incomplete: dict[str, _Incomplete] = {}

    def online(self, task: TaskConnection) -> dict[int, str]:
        """The nodes that are connected, each with the time at which it connected."""
        found = task.client.GetNodes(GetNodesRequest()).nodes
        return {int(node.node_id): str(node.last_activated_at) for node in found}

    def send(self, questions: Mapping[ClientId, RecordDict], seconds: float) -> dict[ClientId, str]:
        node_of = {client: node for node, client in self.nodes.items()}
        clients = [client for client in questions if client in node_of]
        messages = [
            Message(questions[client], node_of[client], MESSAGE_TYPE, ttl=seconds) for client in clients
        ]
        if not messages:
            return {}
        ids = self._try(lambda task: task.push(messages, SERVER_NODE))
        return {client: id for client, id in zip(clients, ids, strict=True) if id}

    def receive(self, ids: Collection[str], max_bytes: float) -> dict[str, RecordDict | Problem]:
        held = self._incomplete = {id: each for id, each in self._incomplete.items() if id in ids}
        return self._try(lambda task: self.receive_from(task, set(ids), max_bytes, held))

    @staticmethod
    def receive_from(
        task: TaskConnection, ids: set[str], max_bytes: float, held: "dict[str, _Incomplete]"
    ) -> dict[str, RecordDict | Problem]:
        """The answers that have come; those of which pieces are missing are held for the next call."""
        answers: dict[str, RecordDict | Problem] = {}
        asked = ids - held.keys()
        if asked:
            found = task.client.PullMessages(PullAppMessagesRequest(message_ids=sorted(asked)))
            for proto, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                reply_to = str(proto.metadata.reply_to_message_id)
                if reply_to not in ids:
                    continue
                if proto.HasField("error"):
                    answers[reply_to] = problem(proto.error.code, proto.error.reason)
                else:
                    held[reply_to] = _Incomplete(str(proto.metadata.message_id), tree, {})
        for id, each in list(held.items()):
            answer = _read(task, each, max_bytes)
            if answer is not None:
                answers[id] = answer
                del held[id]
        return answers

    def _try(self, work: Callable[[TaskConnection], T]) -> T:
        if self.task is None:
            raise LostError("there is no connection")
        try:
            return work(self.task)
        except ConnectionLost as error:
            raise LostError(f"the connection to the SuperLink was lost: {error}") from None

    def close(self, failed: str = "") -> None:
        task, self.task = self.task, None
        self._incomplete = {}
        if task is not None:
            task.finish(failed)


class _Incomplete(NamedTuple):
    """An answer of which not everything has arrived."""

    message_id: str
    tree: ObjectTree
    contents: dict[str, bytes]


class SuperLinkChannel(TaskChannel):
    """Sites behind a SuperLink of our own, each known by its key."""

    def __init__(
        self,
        address: Address,
        secret: bytes,
        keys: Callable[[], Mapping[ClientId, bytes]],
        seconds: float = 120.0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`keys` reads the public keys of the sites that are admitted now; `check` raises an error if the
        server must stop. A connection that cannot be made within `seconds` is an error."""
        super().__init__()
        self.address, self.secret, self.keys = address, secret, keys
        self.seconds, self.check = seconds, check
        self._admitted: Mapping[ClientId, bytes] | None = None

    def reopen(self) -> None:
        self.close(failed="the connection was lost")
        deadline = time.monotonic() + self.seconds
        while True:
            self.check()
            try:
                self._open()
                return
            except ConnectionLost as error:
                if time.monotonic() > deadline:
                    place = self.address.place
                    raise SteelyardError(f"no connection to the SuperLink at {place}: {error}.") from None
            time.sleep(POLL_SECONDS)

    def _open(self) -> None:
        control = Control(self.address)
        try:
            self._admitted = None
            self._register(control)
            run = control.start_run()
        finally:
            control.close()
        self.task = self._take(run)

    def _take(self, run: int) -> TaskConnection:
        """The task of a run. Tasks of earlier runs, whose server died, are ended."""
        source = TaskSource(self.address, self.secret)
        try:
            while True:
                task = source.next(SERVER_TASK)
                if task is None:
                    time.sleep(POLL_SECONDS)
                    continue
                try:
                    task.take_input()
                except BaseException:
                    task.close()
                    raise
                if task.run == run:
                    return task
                task.finish("its server was stopped")
        finally:
            source.close()

    def _register(self, control: Control) -> None:
        """Let the admitted keys connect, and no others."""
        admitted = dict(self.keys())
        if admitted == self._admitted:
            return
        known = {bytes(node.public_key): int(node.node_id) for node in control.nodes()}
        for key in known.keys() - set(admitted.values()):
            control.unregister(known[key])
        self.nodes = {}
        for client, key in admitted.items():
            with suppress(httpx.HTTPStatusError):  # a key that Flower refuses is not connected, that is all
                self.nodes[known[key] if key in known else control.register(client, key)] = client
        self._admitted = admitted

    def connected(self) -> Mapping[ClientId, str]:
        self.check()

        def connections(task: TaskConnection) -> dict[ClientId, str]:
            if dict(self.keys()) != self._admitted:
                control = Control(self.address)
                try:
                    self._register(control)
                finally:
                    control.close()
            online = self.online(task)
            return {self.nodes[node]: since for node, since in online.items() if node in self.nodes}

        return self._try(connections)


def _read(task: TaskConnection, held: _Incomplete, max_bytes: float) -> RecordDict | Problem | None:
    """The content of a message, or what is wrong with it; None if it has not arrived completely."""
    try:
        if not task.pull(held.tree, held.contents, SERVER_NODE, max_bytes):
            return None
        task.confirm(held.message_id, SERVER_NODE)
        message = unfold(held.message_id, held.contents, max_bytes)
        return problem(message.error.code, message.error.reason) if message.has_error() else message.content
    except UnreadableError as error:
        return Problem(f"sent {error}")
    except ConnectionLost:
        raise
    except Exception as error:  # its bytes are the site's: they may raise anything
        return Problem(f"sent a message that cannot be read ({type(error).__name__})")


def problem(code: int, reason: str | None) -> Problem:
    """An error of Flower's, or of a site that pretends to be Flower."""
    return Problem(reason or "an error without a reason", code in PASSING)
