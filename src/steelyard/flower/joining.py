"""A site joins: a key, a SuperNode that holds the connection, and a process with the data that answers."""

import math
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

from flwr.app import Message
from flwr.proto.runtime_pb2 import PullAppMessagesRequest

from steelyard.errors import SteelyardError
from steelyard.flower import credentials, supernode
from steelyard.flower.deployment import Invitation, read_invitation
from steelyard.flower.messages import PROTOCOL
from steelyard.flower.processes import Child, free_port
from steelyard.flower.runtime import SITE_TASK, Address, ConnectionLost, TaskConnection, TaskSource, unfold
from steelyard.flower.site_process import SiteProcess
from steelyard.flower.wire import Parcel, from_records, to_records
from steelyard.runs.folder import Lock
from steelyard.tensor_files import write_private

POLL_SECONDS = 0.1
RETRY_SECONDS = (2.0, 20.0)
"""Between attempts to connect: the first, and the longest."""
LATE_SECONDS, TRY_SECONDS = 20.0, 10.0
Log = Callable[[str], None]


def site_home(invitation: Path, site: str) -> Path:
    """Where a site keeps its key, private states and logs, unless it is told otherwise."""
    return invitation.parent / f"{site}-site"


def prepare(invitation: Path, home: Path | None = None) -> tuple[Invitation, Path, Path]:
    """(invitation, home, public key): the key is made here, if there is none yet."""
    found = read_invitation(invitation)
    home = (home or site_home(invitation, found.site)).resolve()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / credentials.CA).write_text(found.ca, "ascii")
    key = home / f"{found.site}.key"
    credentials.make_site_key(key)
    if not (home / credentials.SECRET).is_file():
        write_private(home / credentials.SECRET, credentials.random_secret())
    return found, home, key.with_suffix(".pub")


def join(
    invitation: Path,
    data: str | None = None,
    *,
    home: Path | None = None,
    trust: bool = False,
    threads: int = 1,
    log: Log = print,
) -> None:
    """Serve as a site until the process is stopped; connects again whenever the connection is lost."""
    found, home, public = prepare(invitation, home)
    lock = Lock(home)
    process = SiteProcess(invitation.resolve(), home, data, trust, threads)
    try:
        process.start()
        log(f"{found.site}: data and model are loaded; the site answers with {threads} thread(s)")
        log(f"{found.site}: the public key is {public}; the server admits it with `steelyard deploy admit`")
        _stay_connected(found, home, process, log)
    finally:
        process.stop()
        lock.release()


def _stay_connected(invitation: Invitation, home: Path, process: SiteProcess, log: Log) -> None:
    wait, said = RETRY_SECONDS[0], ""
    while True:
        answered, port = False, free_port()
        reason = why_unreachable(invitation.address, home / credentials.CA)
        if not reason:
            with _supernode(invitation, home, port) as node:
                answered = _answer_tasks(invitation, node, port, home, process, log)
            reason = node.reason()
        if reason != said or answered:
            said = reason
            log(f"{invitation.site}: not connected: {reason}; trying again")
        wait = RETRY_SECONDS[0] if answered else min(2 * wait, RETRY_SECONDS[1])
        time.sleep(wait)


def why_unreachable(address: str, ca: Path) -> str:
    """Why no trusted connection to the server can be made now; empty if one can."""
    host, _, port = address.rpartition(":")
    try:
        context = ssl.create_default_context(cafile=ca)
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=TRY_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return f"the server at {address} is not the one that invited this site ({error.verify_message})"
    except ssl.SSLError as error:
        return f"no encrypted connection to {address} can be made ({error.reason or error})"
    except (OSError, ValueError) as error:
        return f"no connection to {address} ({getattr(error, 'strerror', None) or error})"


class _SuperNode(Child):
    def __enter__(self) -> "_SuperNode":
        self.start()
        return self

    @property
    def is_connected(self) -> bool:
        """Whether the server knows it, since it was started."""
        return "SuperNode ID" in self.said()

    def reason(self) -> str:
        """Why it ended, in the words of Flower's log."""
        lines = [line.strip() for line in self.said().splitlines()]
        told = [line for line in lines if ("[code" in line or "rror" in line) and "asyncio" not in line]
        for words, meaning in MEANINGS.items():
            if any(words in line for line in told[-3:]):
                return meaning
        return told[-1][:200] if told else "the connection ended"


MEANINGS = {
    "connection was interrupted": "the connection was interrupted",
    "Failed to activate": "the server has not admitted this key, or holds the site's last connection (1 min)",
    "Invalid SuperNode authentication": "the server does not know this site's key, or the clocks differ",
}


def _supernode(invitation: Invitation, home: Path, port: int) -> _SuperNode:
    command: list[str | Path] = [
        *(sys.executable, "-P", str(supernode.__file__), "--superlink", invitation.address),
        *("--root-certificates", home / credentials.CA),
        *("--auth-supernode-private-key", home / f"{invitation.site}.key"),
        *("--isolation", "process", "--superexec-auth-secret-file", home / credentials.SECRET),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    log = home / "logs" / "supernode.log"
    return _SuperNode("SuperNode", command, log, {"FLWR_HOME": str(home / "flower")})


def _answer_tasks(
    invitation: Invitation, node: _SuperNode, port: int, home: Path, process: SiteProcess, log: Log
) -> bool:
    """Answer until the SuperNode ends; returns whether there was anything to answer."""
    address = Address(f"127.0.0.1:{port}")
    source = TaskSource(address, (home / credentials.SECRET).read_bytes())
    answered, connected, late = False, False, time.monotonic() + LATE_SECONDS
    try:
        while not node.has_ended:
            if not connected:
                connected = node.is_connected
                if connected:
                    log(f"{invitation.site}: connected to {invitation.address}")
                elif time.monotonic() > late:
                    log(f"{invitation.site}: no connection to {invitation.address} yet; still trying")
                    late = math.inf
            try:
                task = source.next(SITE_TASK)
            except ConnectionLost:  # it has not started to listen yet, or is ending
                task = None
            if task is None:
                time.sleep(POLL_SECONDS)
                continue
            answered = True
            try:
                text = _answer(task, process, node)
                log(f"{invitation.site}: {text}")
            except Exception as error:  # whatever Flower raises: it is told after a minute, and asks again
                task.close()
                log(f"{invitation.site}: an answer was lost: {type(error).__name__}: {error}")
    finally:
        source.close()
    return answered


def _answer(task: TaskConnection, process: SiteProcess, node: Child) -> str:
    """Answer one question; returns what was done, in a few words."""
    number = int(task.take_input().context.node_id)
    found = task.client.PullMessages(PullAppMessagesRequest())
    tree = found.message_object_trees[0]

    def check() -> None:
        if node.has_ended:
            raise SteelyardError("the connection ended while the site worked")

    contents: dict[str, bytes] = {}
    while not task.pull(tree, contents, number, math.inf):  # it is still on its way
        check()
        time.sleep(POLL_SECONDS)
    task.confirm(tree.object_id, number)
    message = unfold(tree.object_id, contents, math.inf)
    question = from_records(message.content)
    answer = process.answer(question, check) or _failure(question, process.ending)
    task.push([Message(to_records(answer), reply_to=message)], number)
    task.finish()
    round, trains = question.header.get("round"), question.header.get("train")
    done = f"answered round {round}" if trains else f"scored the model of round {int(round or 1) - 1}"
    done = done if round else "gave its profile"
    return f"{done}, but failed: {answer.header['reason']}" if "reason" in answer.header else done


def _failure(question: Parcel, reason: str) -> Parcel:
    kept = {name: question.header.get(name) for name in ("client", "spec", "run", "nonce", "round")}
    return Parcel({"protocol": PROTOCOL, **kept, "classes": {}, "stage": "training", "reason": reason})
