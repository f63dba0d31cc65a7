"""Flower's interfaces as steelyard uses them. Most are not public, so Flower's minor version is pinned.

SuperLink and SuperNode run with `--isolation process`: they start no process for a message, and hand tasks to
the process that holds their secret. At the server that is `serve`, at a site `join`. So a site never runs
code that came over the network (Flower's app bundles are not unpacked), and its data and model stay in
memory. `channel`, `joining` and `supernode` use some of Flower's internals, too.
"""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import message_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
)
from flwr.proto.node_pb2 import Node, NodeInfo
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_head_values_from_object_content,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPushError,
    inflate_object_from_contents,
    push_objects,
)
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

SERVER_TASK, SITE_TASK = "flwr-serverapp", "flwr-clientapp"
MESSAGE_TYPE = "train"
HEARTBEAT_SECONDS = 10.0
PULLS_AT_ONCE = 4
MAX_OBJECTS = 100_000  # pieces of one message; Flower cuts arrays into pieces of 5 MiB
MAX_DESCRIBED = 4 << 20  # bytes of a message besides the pieces of its arrays
ConnectionLost = (httpx.HTTPError, OSError, ObjectPushError)
"""What is raised when a request, or a message, did not get through."""

_APP = {
    "pyproject.toml": b"""[project]
name = "steelyard"
version = "1.0.0"
[tool.flwr.app]
publisher = "steelyard"
[tool.flwr.app.components]
serverapp = "steelyard_app:app"
clientapp = "steelyard_app:app"
[tool.flwr.app.config]
""",
    "steelyard_app.py": b'"""Not run: `steelyard deploy` executes its own tasks."""\napp = None\n',
}


class Address(NamedTuple):
    """Where a Flower process listens, and how to trust it; without a certificate, plain on loopback."""

    place: str
    """host:port."""
    ca: Path | None = None

    def client(self, kind: Any, *interceptors: Any) -> Any:
        version = RuntimeVersionHttpInterceptor(component_name="steelyard")
        certificate = None if self.ca is None else str(self.ca)
        return kind.from_server_address(self.place, self.ca is None, certificate, [version, *interceptors])


class Control:
    """SuperLink's control calls: which keys may connect, and the start of a run."""

    def __init__(self, address: Address) -> None:
        self.client: ControlHttpClient = address.client(ControlHttpClient)

    def nodes(self) -> Sequence[NodeInfo]:
        """The nodes that are registered, connected or not."""
        found = self.client.ListNodes(ListNodesRequest()).nodes_info
        return [node for node in found if node.status != "unregistered"]

    def register(self, name: str, public_key: bytes) -> int:
        return int(self.client.RegisterNode(RegisterNodeRequest(public_key=public_key, name=name)).node_id)

    def unregister(self, node: int) -> None:
        self.client.UnregisterNode(UnregisterNodeRequest(node_id=node))

    def start_run(self) -> int:
        """A new run; earlier ones, whose server is gone, are stopped, so that no site works for them."""
        runs = self.client.ListRuns(ListRunsRequest()).run_dict
        for run in runs.values():
            if run.status.status != "finished":
                with suppress(httpx.HTTPStatusError):  # it has finished just now
                    self.client.StopRun(StopRunRequest(run_id=run.run_id))
        fab, _ = build_fab_from_files(_APP)
        return int(self.client.StartRun(StartRunRequest(fab=Fab(content=fab))).run_id)

    def close(self) -> None:
        self.client.close()


class TaskConnection:
    """One task of Flower, held with its token; a thread tells Flower that it is alive."""

    def __init__(self, client: RuntimeHttpClient, run: int) -> None:
        self.client, self.run, self._ended = client, run, threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="flower-heartbeat")
        self._thread.start()

    def _beat(self) -> None:
        while not self._ended.is_set():
            with suppress(Exception):  # what is wrong shows in the next request
                self.client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            self._ended.wait(HEARTBEAT_SECONDS)

    def take_input(self) -> Any:
        """Begin the task; messages that this process makes belong to it from now on."""
        given = self.client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        return given

    def finish(self, failed: str = "") -> None:
        status = "failed" if failed else "completed"
        with suppress(*ConnectionLost):
            self.client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=failed))
        self.close()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(timeout=1)
        self.client.close()

    def push(self, messages: Sequence[Message], node: int) -> list[str]:
        """Send messages and what is in them; returns their ids. Equal arrays are sent once."""
        with no_object_id_recompute():
            objects: dict[str, Any] = {}
            for message in messages:
                message.metadata.__dict__["_message_id"] = message.object_id
                objects |= get_all_nested_objects(message)
            answer = self.client.PushMessages(
                PushAppMessagesRequest(
                    messages_list=[message_to_proto(remove_content_from_message(each)) for each in messages],
                    message_object_trees=[get_object_tree(each) for each in messages],
                )
            )
            store = make_push_object_fn_protobuf(
                self.client.PushObject, Node(node_id=node), self.run, answer.session_id
            )
            push_objects(objects, store, object_ids_to_push=set(answer.objects_to_push))
        return list(answer.message_ids)

    def pull(self, tree: ObjectTree, contents: dict[str, bytes], node: int, max_bytes: float) -> bool:
        """Add the objects of a message to its contents; False if the sender has not sent them all yet."""
        ids = list(dict.fromkeys(each.object_id for each in iterate_object_tree(tree)))
        if len(ids) > MAX_OBJECTS:
            raise UnreadableError(f"a message of {len(ids)} pieces")
        left = max_bytes - sum(map(len, contents.values()))
        missing = [id for id in ids if id not in contents]
        with ThreadPoolExecutor(PULLS_AT_ONCE) as pool:
            for first in range(0, len(missing), PULLS_AT_ONCE):
                some = missing[first : first + PULLS_AT_ONCE]
                for id, answer in zip(some, pool.map(partial(self._object, node), some), strict=True):
                    if not answer.object_found:
                        raise UnreadableError("a message with missing pieces")
                    if not answer.object_available:
                        return False
                    left -= len(answer.object_content)
                    if left < 0:
                        raise UnreadableError(f"a message of more than {max_bytes:.0f} bytes")
                    contents[id] = answer.object_content
        return True

    def _object(self, node: int, id: str) -> PullObjectResponse:
        request = PullObjectRequest(node=Node(node_id=node), run_id=self.run, object_id=id)
        return self.client.PullObject(request)

    def confirm(self, message_id: str, node: int) -> None:
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=Node(node_id=node), run_id=self.run, message_object_id=message_id
            )
        )


class UnreadableError(Exception):
    """A message that cannot or must not be read; says what it is."""


def unfold(message_id: str, contents: dict[str, bytes], max_bytes: float) -> Message:
    """The message from its objects. What a hostile sender wrote may raise any exception.

    An array lists its pieces, and may list one of them a million times: what it would become is added up
    before it is made. What is not a piece becomes Python objects, which are much larger than their text.
    """
    total, described = 0.0, 0
    for content in contents.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        described += 0 if kind == "ArrayChunk" else len(content)
        if described > MAX_DESCRIBED:
            raise UnreadableError(f"more than {MAX_DESCRIBED} bytes besides its arrays")
        if kind == "Array":
            listed = json.loads(content.partition(b"\0")[2])["arraychunk_ids"]
            total += sum(len(contents[children[place]]) for place in listed)
            if total > max_bytes:
                raise UnreadableError(f"arrays of more than {max_bytes:.0f} bytes")
    message = inflate_object_from_contents(message_id, contents)
    if type(message) is not Message:
        raise UnreadableError("no message at all")
    message.metadata.__dict__["_message_id"] = message_id
    return message


class TaskSource:
    """Where tasks wait to be done."""

    def __init__(self, address: Address, secret: bytes) -> None:
        signed = SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods={"/flwr.proto.Runtime/AcquireTask"}
        )
        self.address = address
        self.client: RuntimeHttpClient = address.client(RuntimeHttpClient, signed)

    def next(self, kind: str) -> TaskConnection | None:
        """A task that waits, if there is one."""
        found = self.client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        if not (found.HasField("task") and found.token):
            return None
        client = self.address.client(RuntimeHttpClient, RuntimeTokenHttpInterceptor(found.token))
        return TaskConnection(client, int(found.task.run_id))

    def close(self) -> None:
        self.client.close()
