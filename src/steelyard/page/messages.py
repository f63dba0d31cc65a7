"""The messages of a run's record for browsers: read in threads, and only if its files have changed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from steelyard.runs.folder import DATABASE
from steelyard.texts import to_json

RECHECK = 5.0
"""Seconds after which the record is read although its files look the same."""


class Source(Protocol):
    """Reads a run's record (`page/follower.py`)."""

    def snapshot(self) -> dict[str, Any]: ...
    def update(self) -> dict[str, Any] | None: ...


class Messages:
    """What a record has to say; one call at a time."""

    def __init__(self, path: Path, follow: Callable[[Path], Source]) -> None:
        self.path, self._follow = path, follow
        self._source: Source | None = None
        self._snapshot: bytes | None = None
        self._seen: tuple[object, ...] = ()
        self._due = 0.0

    def update(self) -> tuple[str, bytes] | None:
        """The type and text of what is new since the last call; None if nothing is."""
        seen = marks(self.path)
        if self._source is None or (seen == self._seen and time.monotonic() < self._due):
            return None
        message = self._source.update()
        self._seen, self._due = seen, time.monotonic() + RECHECK
        if message is None:
            return None
        text = encoded(message)
        self._snapshot = text if message["type"] == "snapshot" else None
        return message["type"], text

    def snapshot(self) -> tuple[bytes, bool]:
        """Everything so far, and whether that is more than all updates: then every browser needs it.

        It is made once for all browsers that need it before the next change.
        """
        if self._source is None:
            self._source = self._follow(self.path)
        if self._snapshot is not None:
            return self._snapshot, False
        self._snapshot = encoded(self._source.snapshot())
        return self._snapshot, marks(self.path) != self._seen


def marks(path: Path) -> tuple[object, ...]:
    """Values that differ when a run's record has changed; cheap, and no lock on the record."""
    found: list[object] = []
    for name in (DATABASE, f"{DATABASE}-wal"):
        try:
            status = (path / name).stat()
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def encoded(message: dict[str, Any]) -> bytes:
    """A message as a server-sent event. ASCII: client names may hold line ends and half characters."""
    return b"data: " + to_json(message).encode() + b"\n\n"
