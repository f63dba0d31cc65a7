"""One run and all browsers that look at it: the record is read once for all of them.

Nothing is read while no browser is connected. A browser has at most one message waiting for it; one that is
slower than the run gets a new snapshot when it is ready for it.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from steelyard.errors import SteelyardError
from steelyard.page.messages import Messages, Source
from steelyard.runs.folder import DATABASE

AFTER_CHANGE, OTHERWISE = 0.5, 0.2
"""Seconds until the next look at the record: reading what is new costs something, looking for it does not."""
CLOSING = 1.0
"""Seconds for the last look at the record when the server ends."""
_UNREADABLE = (SteelyardError, OSError, sqlite3.Error)

log = logging.getLogger("steelyard.page")


class Viewer:
    """One browser."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.behind = True
        """Whether it must get a snapshot before any update."""
        self.is_waiting = False
        self._wake, self._arrived, self._ended = wake, asyncio.Event(), False
        self._pending: bytes | None = None

    @property
    def wants_snapshot(self) -> bool:
        return self.behind and self.is_waiting

    async def next(self) -> bytes | None:
        """The next message; None if there are no more."""
        self.is_waiting = True
        try:
            if self.behind:
                self._wake()
            await self._arrived.wait()
        finally:
            self.is_waiting = False
        if not self._ended:
            self._arrived.clear()
        message, self._pending = self._pending, None
        return message

    def put_snapshot(self, message: bytes) -> None:
        self.behind, self._pending = False, message
        self._arrived.set()

    def put_update(self, message: bytes) -> None:
        """An update, unless the one before it is still there: then both are dropped for a later snapshot."""
        if self.behind:
            return
        if self._pending is not None:
            self.fall_behind()
            return
        self._pending = message
        self._arrived.set()

    def fall_behind(self) -> None:
        self.behind, self._pending = True, None
        self._arrived.clear()

    def end(self) -> None:
        """No message comes after the one that is waiting."""
        self._ended = True
        self._arrived.set()


class Feed:
    """Follows one run while browsers are connected."""

    def __init__(self, path: Path, follow: Callable[[Path], Source]) -> None:
        self.path, self.viewers = path, set[Viewer]()
        self._follow = follow
        self._wake, self._closing = asyncio.Event(), False
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def viewer(self) -> Iterator[Viewer]:
        """A browser that gets the messages of this run for as long as the block lasts."""
        viewer = Viewer(self._wake.set)
        self.viewers.add(viewer)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield viewer
        finally:
            self.viewers.discard(viewer)
            if not self.viewers:
                self._stop()

    async def close(self) -> None:
        """Hand out what was recorded last, and end the streams of all browsers."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSING)
        self._stop()
        for viewer in self.viewers:
            viewer.end()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll(self) -> None:
        pause, messages = OTHERWISE, Messages(self.path, self._follow)
        try:
            while (self.path / DATABASE).is_file():
                self._wake.clear()
                last = self._closing
                try:
                    changed = await self._look(messages)
                    pause = AFTER_CHANGE if changed else OTHERWISE
                except _UNREADABLE:  # locked or damaged: perhaps it can be read again soon, from the start
                    pause, messages = AFTER_CHANGE, Messages(self.path, self._follow)
                    for viewer in self.viewers:
                        viewer.fall_behind()
                if last:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
        except Exception:
            log.exception("the page of %s has stopped", self.path)
        for viewer in self.viewers:
            viewer.end()

    async def _look(self, messages: Messages) -> bool:
        """Read what is new and hand it out; returns whether there was something."""
        wanted = any(viewer.wants_snapshot for viewer in self.viewers)
        update = await asyncio.to_thread(messages.update)
        if update is not None:
            kind, message = update
            for viewer in self.viewers:
                (viewer.put_snapshot if kind == "snapshot" else viewer.put_update)(message)
        if wanted:
            snapshot, for_all = await asyncio.to_thread(messages.snapshot)
            for viewer in self.viewers:
                if for_all or viewer.wants_snapshot:
                    viewer.put_snapshot(snapshot)
        return update is not None


class Feeds:
    """The feeds of all runs that browsers look at."""

    def __init__(self, follow: Callable[[Path], Source]) -> None:
        self._follow, self._feeds = follow, dict[Path, Feed]()
        self._closed = False

    @contextmanager
    def viewer(self, path: Path) -> Iterator[Viewer]:
        feed = self._feeds.setdefault(path, Feed(path, self._follow))
        try:
            with feed.viewer() as viewer:
                if self._closed:
                    viewer.end()
                yield viewer
        finally:
            if not feed.viewers:
                self._feeds.pop(path, None)

    async def close(self) -> None:
        """End all streams, also those that begin later."""
        self._closed = True
        await asyncio.gather(*(feed.close() for feed in self._feeds.values()))
