"""A page server in a thread of the test, and what a browser would read from it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from steelyard.page.serving import PageServer, open_page
from steelyard.runs.reader import Run
from steelyard.runs.writer import Recorder
from steelyard.types import Round

DEADLINE = 60.0


class Counter:
    """A follower that tells only how many rounds are recorded."""

    def __init__(self, path: Path) -> None:
        self.path, self.told = path, 0

    def snapshot(self) -> dict[str, Any]:
        self.told = len(Run(self.path).rounds)
        return {"type": "snapshot", "data": {"done": self.told}}

    def update(self) -> dict[str, Any] | None:
        before, self.told = self.told, len(Run(self.path).rounds)
        return {"type": "update", "fields": {"done": self.told}} if self.told != before else None


@contextmanager
def served(path: Path, follow: Callable[[Path], Any] = Counter) -> Iterator[PageServer]:
    server = open_page(path, follow=follow)
    thread = threading.Thread(target=server.serve_until_asked)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield server
    finally:
        server.should_exit = True
        thread.join(DEADLINE)
    assert not thread.is_alive()


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def events_url(server_url: str, path: Path) -> str:
    return f"{server_url}run/{path.name}/events"


@contextmanager
def events(url: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The messages of a stream, as they come."""
    with httpx.stream("GET", url, timeout=DEADLINE) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        yield (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def record(recorder: Recorder, number: int, **metrics: float) -> None:
    row = {"client": "a", "status": "used", "weight": 1.0}
    recorder(Round(number, {"loss": 1.0 / number, **metrics}, (row,), {"exchange": 0.5, "evaluate": 0.25}))
