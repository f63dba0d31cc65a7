"""One exchange with remote sites: questions go out, answers come in, and what is lost is asked again."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.flower.channel import POLL_SECONDS, Channel, LostError, Problem
from steelyard.flower.messages import Envelope
from steelyard.flower.wire import Parcel, WireError, array_record, from_records, to_records
from steelyard.sites import LATE
from steelyard.types import ClientId, Failure

LOOK_SECONDS = 0.5
MAX_SECONDS = 30 * 86400.0  # that Flower keeps a question
Read = Callable[[Parcel, Envelope], Any]
Watch = Callable[[set[ClientId], set[ClientId]], None]


@dataclass(frozen=True)
class Question:
    """What one client is asked."""

    envelope: Envelope
    header: Mapping[str, Any]

    @property
    def content(self) -> Mapping[str, Any]:
        return self.header or self.envelope.header()


class Presence:
    """Which sites are connected, and for how long the others have been missed."""

    def __init__(self, clients: Collection[ClientId], channel: Channel, watch: Watch) -> None:
        self.clients, self.channel, self.watch = clients, channel, watch
        self._connected: Mapping[ClientId, str] = {}
        self._left: dict[ClientId, float] = {}
        """When the server first missed each site that is not connected."""
        self._look_at = 0.0

    def look(self, waiting: Collection[ClientId] = ()) -> Mapping[ClientId, str]:
        """The clients that are connected, each with its connection; looked at twice a second."""
        if time.monotonic() >= self._look_at:
            self._connected = self.channel.connected()
            now = time.monotonic()
            self._look_at = now + LOOK_SECONDS
            missing = [client for client in self.clients if client not in self._connected]
            self._left = {client: self._left.get(client, now) for client in missing}
        self.watch({*self._connected}, {*waiting})
        return self._connected

    def reopen(self) -> None:
        """After the connection of the server itself was lost."""
        self.channel.reopen()
        self._look_at = 0.0

    def away(self, client: ClientId) -> float:
        """Seconds since the server first missed a site that is not connected; 0 if it is."""
        return time.monotonic() - self._left[client] if client in self._left else 0.0


class Asking:
    """Questions to some clients, until each has answered or is given up."""

    def __init__(
        self,
        presence: Presence,
        questions: Mapping[ClientId, Question],
        arrays: Mapping[str, Any],
        *,
        seconds: float,
        offline: float,
        max_bytes: float,
        read: Read,
        log: Callable[[str], None],
    ) -> None:
        """All questions share the arrays. The end is after `seconds`, or `offline` seconds without a
        connection; an answer has at most `max_bytes`, and `read` makes a value of it."""
        self.presence, self.channel, self.log = presence, presence.channel, log
        self.open, self.record = dict(questions), array_record(arrays)
        self.seconds, self.offline, self.max_bytes, self.read = seconds, offline, max_bytes, read
        self.end = time.monotonic() + seconds
        self.waiting: dict[ClientId, str] = {}
        """The id of the question that each client has now."""
        self.asked_on: dict[ClientId, str] = {}
        """The connection that it was sent on."""
        self.why: dict[ClientId, str] = {}
        """Why a client had to be asked again."""

    def answers(self) -> Iterator[tuple[ClientId, Any]]:
        """What came of each client: a value, or a failure."""
        while self.open:
            now = time.monotonic()
            try:
                connected = self.presence.look(self.open)
                self._forget_restarted(connected)
                if now < self.end:
                    self._send(connected, self.end - now)
                yield from self._receive()
            except LostError as error:
                self.log(f"{error}; connecting again")
                self.presence.reopen()
                self.waiting = {}
            yield from self._given_up(now >= self.end)
            if self.open:
                time.sleep(POLL_SECONDS)

    def _forget_restarted(self, connected: Mapping[ClientId, str]) -> None:
        """A site that has connected anew does not know what it was asked before."""
        for client in [*self.waiting]:
            if connected.get(client, self.asked_on[client]) != self.asked_on[client]:
                self.why[client] = "its connection ended"
                del self.waiting[client]

    def _send(self, connected: Mapping[ClientId, str], left: float) -> None:
        ready = [client for client in self.open if client not in self.waiting and client in connected]
        if ready:
            sent = {each: to_records(Parcel(self.open[each].content), self.record) for each in ready}
            self.waiting |= self.channel.send(sent, min(max(left, 1.0) + 60.0, MAX_SECONDS))
            self.asked_on |= {client: connected[client] for client in ready}

    def _receive(self) -> Iterator[tuple[ClientId, Any]]:
        ids = {id: client for client, id in self.waiting.items()}
        for id, found in self.channel.receive(ids, self.max_bytes).items() if ids else ():
            client = ids[id]
            del self.waiting[client]
            if isinstance(found, Problem) and found.is_passing:  # lost on the way: ask again
                self.why[client] = found.reason
            else:
                yield client, self._value(found, self.open.pop(client).envelope)

    def _value(self, found: Any, envelope: Envelope) -> Any:
        """What a site answered, or its failure: it can send anything."""
        try:
            if isinstance(found, Problem):
                raise WireError(found.reason)
            return self.read(from_records(found, self.max_bytes), envelope)
        except WireError as error:
            return Failure(envelope.client, LATE, str(error))
        except Exception as error:
            return Failure(envelope.client, LATE, f"its answer cannot be read ({type(error).__name__})")

    def _given_up(self, is_over: bool) -> Iterator[tuple[ClientId, Failure]]:
        for client in [each for each in self.open if is_over or self.presence.away(each) > self.offline]:
            del self.open[client]
            self.waiting.pop(client, None)
            away = self.presence.away(client)
            reason = f"not connected for {away:.0f} s" if away else f"no answer within {self.seconds:g} s"
            told = f" ({self.why[client]})" if client in self.why else ""
            yield client, Failure(client, LATE, reason + told)
