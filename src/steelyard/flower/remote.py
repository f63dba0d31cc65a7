"""Remote sites: the `Sites` of a federation across machines. What a site answers is what it would simulated.

A question that is lost, with a process, a machine or the connection, is asked again until the round's
deadline; a site computes the same answer again. So a crash costs time, and changes no number.
"""

import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steelyard.client.private_state import Versions
from steelyard.errors import InputError, SteelyardError
from steelyard.flower import messages
from steelyard.flower.asking import Asking, Presence, Question, Read, Watch
from steelyard.flower.channel import Channel
from steelyard.flower.messages import Envelope, States
from steelyard.server.reasons import one_line
from steelyard.sites import Answer, Profile, Request
from steelyard.tensor_files import sync
from steelyard.types import Broadcast, ClientId, Failure, Message

SLACK_BYTES = 8 << 20  # of a message besides the model: header, scores, and Flower's own
KEPT_COMMITS = 3
PROFILES = "profiles.json"
Log = Callable[[str], None]
logger = logging.getLogger("steelyard.flower")


@dataclass(frozen=True)
class Patience:
    """How long the server waits, in seconds."""

    round: float = 600.0
    """For an answer, if the spec sets no `round_seconds`."""
    offline: float = 120.0
    """For a site that is not connected; later rounds go on without it at once, until it is back."""
    profile: float = 120.0
    """For a site's profile, before the first round."""


class RemoteSites:
    """Sites that are reached through a channel."""

    about = "remote sites over Flower"

    def __init__(
        self,
        clients: Sequence[ClientId],
        channel: Channel,
        spec: str,
        run: str,
        folder: Path,
        patience: Patience | None = None,
        log: Log = lambda text: None,
        watch: Watch = lambda connected, waiting: None,
    ) -> None:
        """`spec` is the hash of the spec, `run` the id of the run. In `folder`, the profiles are kept, and
        which sites answered in which round, so that a resumed run goes on from the same. `watch` is called
        several times a second with the clients that are connected, and with those that have not answered."""
        self.clients = tuple(sorted(clients))
        self.channel, self.spec, self.run, self.folder = channel, spec, run, folder
        self.patience, self.log = patience or Patience(), log
        self.presence = Presence(self.clients, channel, watch)
        self.answered: Versions[int] = Versions()
        """The last round that each client answered with an update."""
        self.commits: list[int] = [0]

    def profiles(self, clients: Sequence[ClientId]) -> Mapping[ClientId, Profile]:
        """The profiles of these clients. A run that is resumed uses those that it began with."""
        kept, reasons = self._kept_profiles(), dict[ClientId, str]()
        missing = [client for client in clients if client not in kept]
        asked = {client: Question(self._envelope(client, 0), {}) for client in missing}
        for client, found in self._answers(
            asked, {}, self.patience.profile, SLACK_BYTES, messages.read_profile
        ):
            if isinstance(found, Failure):
                reasons[client] = one_line(found.reason)
                self.log(f"{client} gave no profile: {reasons[client]}")
            else:
                kept[client] = found
        if clients and not kept:
            told = "; ".join(f"{client}: {reason}" for client, reason in sorted(reasons.items()))
            raise SteelyardError(f"no site can take part ({told}).")
        self._keep_profiles(kept)
        return {client: kept[client] for client in clients if client in kept}

    def ask(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        evaluate: Sequence[ClientId] = (),
        *,
        detail: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Answer | Failure]:
        asked = {}
        for client in sorted({*train, *evaluate}):
            request = Request(broadcast, client in train, client in evaluate, detail)
            states = States(self.answered.get(client) or 0, self.commits[0])
            envelope = self._envelope(client, broadcast.round)
            asked[client] = Question(envelope, messages.request_header(envelope, request, states))
        arrays = messages.request_arrays(Request(broadcast))
        limit = _nbytes(broadcast.message) + SLACK_BYTES
        wait = self.patience.round if seconds is None else seconds
        logger.info("round %d: asking %d sites, which have %g s", broadcast.round, len(asked), wait)
        for client, found in self._answers(asked, arrays, wait, limit, messages.read_answer):
            logger.debug("round %d: %s has answered, or has failed", broadcast.round, client)
            if isinstance(found, Answer) and found.reply is not None:
                self.answered.put(broadcast.round, {client: broadcast.round})
            yield found

    def connected(self) -> Mapping[ClientId, str]:
        """The clients whose sites are connected, each with its connection."""
        return self.presence.look()

    def _answers(
        self,
        questions: Mapping[ClientId, Question],
        arrays: Mapping[str, Any],
        seconds: float,
        max_bytes: float,
        read: Read,
    ) -> Iterator[tuple[ClientId, Any]]:
        return Asking(
            self.presence,
            questions,
            arrays,
            seconds=seconds,
            offline=self.patience.offline,
            max_bytes=max_bytes,
            read=read,
            log=self.log,
        ).answers()

    def _envelope(self, client: ClientId, round: int) -> Envelope:
        return Envelope(client, self.spec, self.run, secrets.token_hex(16), round)

    def commit(self, round: int) -> None:
        self.answered.finish(round)
        if round in self.commits:
            return
        _write(self._commit_path(round), dict(self.answered.finished))
        self.commits = [*self.commits, round][-KEPT_COMMITS:]
        for path in self.folder.glob("answered-*.json"):
            if path not in {self._commit_path(each) for each in self.commits}:
                path.unlink(missing_ok=True)

    def rewind(self, round: int) -> None:
        path = self._commit_path(round)
        self.answered = Versions(_read_json(path) if round else {})
        self.commits = [round]

    def _commit_path(self, round: int) -> Path:
        return self.folder / f"answered-{round}.json"

    def _kept_profiles(self) -> dict[ClientId, Profile]:
        path = self.folder / PROFILES
        found = _read_json(path) if path.is_file() else {}
        return {client: _profile(client, values) for client, values in found.items()}

    def _keep_profiles(self, profiles: Mapping[ClientId, Profile]) -> None:
        table = {}
        for client, each in profiles.items():
            counts = None if each.class_counts is None else each.class_counts.tolist()
            table[client] = [each.num_examples, each.shapes, each.model_bytes, counts]
        _write(self.folder / PROFILES, table)


def _profile(client: ClientId, values: list[Any]) -> Profile:
    examples, shapes, size, counts = values
    found = None if counts is None else torch.tensor(counts, dtype=torch.int64)
    return Profile(client, examples, tuple(map(tuple, shapes)), size, found)


def _nbytes(message: Message) -> float:
    return float(sum(slot.numel() * slot.element_size() for slot in message if slot is not None))


def _write(path: Path, content: Any) -> None:
    """Write JSON that is whole and on disk before it has its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(content) + "\n", "utf-8")
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}; restore it from a copy.") from None
