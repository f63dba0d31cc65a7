"""What `steelyard deploy` prints while it runs: lines with their time, and a live table on a terminal."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.cli.page import Start
from steelyard.cli.shared import show_values, stderr

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


def show_status(folder: Path, as_json: bool) -> None:
    """Print the status of a deployment, and the verdicts on its clients so far."""
    from dataclasses import asdict

    from rich.console import Group

    from steelyard.flower.deployment import STATUS
    from steelyard.flower.status import read_status
    from steelyard.report.deployment import status_report
    from steelyard.report.terminal import verdict_report
    from steelyard.runs.reader import Run
    from steelyard.runs.summary import client_table

    found = read_status(folder / STATUS)
    clients = client_table(Run(found.run).verdicts.values()) if found.run and found.round else []
    verdicts = {row["client"]: row["verdict"] for row in clients}
    values = {**asdict(found), "missing": found.missing, "verdicts": verdicts}
    why = ["", verdict_report(clients)] if clients else []
    show_values(values, lambda: Group(status_report(found), *why), as_json)
