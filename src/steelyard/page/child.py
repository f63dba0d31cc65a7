"""The live page as a process of its own, beside a run: it takes no time from the rounds.

It ends when the process that started it does, also by kill -9. If it fails, the run goes on.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from steelyard.errors import InputError, SteelyardError

MISSING = 'the page needs packages that are not installed: pip install "steelyard[page]".'
START_SECONDS, STOP_SECONDS, CHECK_SECONDS = 60.0, 4.0, 1.0
END_SECONDS = 3.0
"""How long the process may take to tell browsers how the run ended."""
PRIORITY = 10
"""How far the page steps back behind other processes, as for the command `nice`."""


def check_installed() -> None:
    """Raise an error if the packages of the page are not installed."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise InputError(MISSING)


class PageChild:
    """A process that serves the page of a run or folder, for as long as the block lasts."""

    def __init__(self, path: Path) -> None:
        """Start the process and wait until the page can be opened."""
        # -P: like the command steelyard, it does not look for modules in the current folder.
        command = [sys.executable, "-P", "-m", "steelyard.page.child", str(path.resolve()), str(os.getpid())]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            answer = self._answer()
        except BaseException:
            self.stop()
            raise
        self.url: str = answer["url"]
        self.note: str | None = answer["note"]
        """What the user should know: that the usual port was taken."""

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else b""
        self.process.stdout.close()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process did not start"}
        if "error" in answer:
            raise SteelyardError(f"the page could not be started: {answer['error']}")
        return answer

    def wait(self) -> None:
        """Wait until the process ends by itself."""
        self.process.wait()

    def stop(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()  # the process ends when its standard input does
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "PageChild":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main() -> None:
    """What the process does: open the page, tell its URL on standard output, serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("parent", type=int)
    arguments = parser.parse_args()
    ending: list[Callable[[], None]] = []
    threading.Thread(target=_end_with, args=(arguments.parent, ending), daemon=True).start()
    with suppress(OSError):
        os.nice(PRIORITY)
    try:
        from steelyard.page.serving import open_page

        page = open_page(arguments.path)
    except (SteelyardError, ImportError) as error:
        _tell({"error": str(error)})
        sys.exit(1)
    _tell({"url": page.url, "note": page.note})
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # later errors must not appear within the run's own output
    ending.append(page.end)
    page.serve_until_asked()


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
    os.close(1)


def _end_with(parent: int, ending: list[Callable[[], None]]) -> None:
    """End this process when standard input ends or the parent is gone.

    A process that the parent starts later may hold the other end of standard input for a while.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], CHECK_SECONDS)
        if ready and not os.read(0, 1):
            break
    for end in ending:
        end()
        time.sleep(END_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    main()
