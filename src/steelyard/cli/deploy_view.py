"""What `steelyard deploy` prints while it runs: lines with their time, and a live table on a terminal."""

import json
import time
from typing import TYPE_CHECKING

from steelyard.cli.page import Start
from steelyard.cli.shared import stderr

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from steelyard.flower.status import Status


def print_json(text: str) -> None:
    print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "text": text}), flush=True)


def print_line(text: str) -> None:
    from steelyard.report.console import SafeConsole

    _line(SafeConsole(), text)


def _line(console: "Console", text: str) -> None:
    """A line of a log with its time; a file gets it as one line, however long it is."""
    from rich.text import Text

    line = Text.assemble((time.strftime("%H:%M:%S"), "dim"), " ", text)
    console.print(line, soft_wrap=not console.is_terminal)


class View:
    """Log lines above a live table, on a terminal; log lines alone elsewhere.

    `start_page` is called with the folder of the run.
    """

    def __init__(self, start_page: Start = lambda path, log: None) -> None:
        self.console, self._due = stderr(), 0.0
        self._start_page = start_page
        self.live: Live | None = None

    def __enter__(self) -> "View":
        if self.console.is_terminal:
            from rich.live import Live

            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def log(self, text: str) -> None:
        _line(self.console, text)

    def show(self, status: "Status") -> None:
        self._start_page(status.run, self.log)
        if self.live is not None and time.monotonic() >= self._due:
            from steelyard.report.deployment import status_report

            self.live.update(status_report(status, self.console.size), refresh=True)
            self._due = time.monotonic() + 0.5
