"""The progress bar of a run that is started from Python: in a notebook, or on a terminal if it takes long."""

import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from steelyard.observers.base import Tracker
from steelyard.observers.facts import RunFacts
from steelyard.observers.notebook import notebook_bar
from steelyard.texts import plain
from steelyard.types import Round

VARIABLE = "STEELYARD_PROGRESS"
"""Environment variable: 0 shows no bars."""
SECONDS_BEFORE = 1.0  # a run that ends earlier shows no bar
SECONDS = 0.2  # between two updates
MIN_BAR, BAR = 4, 20
MAX_NAME = 32
METRICS = ("accuracy", "mse", "client_accuracy", "client_mse", "loss")
"""Of these, the first that a round has is shown."""


def progress_bars(progress: bool) -> tuple[Tracker, ...]:
    """The bar for this process: none in a child process, without a terminal, or if it is switched off."""
    if not progress or os.environ.get(VARIABLE, "").lower() in ("0", "false", "off", "no"):
        return ()
    if found := notebook_bar():
        return found
    is_child = multiprocessing.parent_process() is not None
    return () if is_child or not _is_terminal(sys.stderr) else (TerminalBar(sys.stderr),)


class TerminalBar(Tracker):
    """One line that is written over and over, and removed when the run has ended."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._score, self._is_shown = stream, clock, "", False

    def begin(self, facts: RunFacts) -> None:
        self._name, self._rounds, self._first = _short(plain(facts.name)), facts.rounds, facts.after or 0
        self._start = self._clock()
        self._due = self._start + SECONDS_BEFORE

    def __call__(self, round: Round) -> None:
        self._score = _score(round) or self._score
        if self._clock() >= self._due:
            self._due = self._clock() + SECONDS
            self._is_shown = True
            self._write(self._line(round.number))

    def end(self, status: str) -> None:
        if self._is_shown:
            self._write("")

    def _line(self, done: int) -> str:
        per_round = (self._clock() - self._start) / max(done - self._first, 1)
        seconds = round_up(per_round * (self._rounds - done))
        count = f"round {done:{len(str(self._rounds))}} of {self._rounds}"
        left = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"
        parts = [self._name, count, left, *([self._score] if self._score else [])]
        room = min(shutil.get_terminal_size().columns - 3 - len("  ".join(parts)), BAR)
        if room >= MIN_BAR:
            filled = room * done // self._rounds
            parts.insert(1, "━" * filled + "─" * (room - filled))
        return "  ".join(parts)

    def _write(self, line: str) -> None:
        """The line in place of the one before, cut where the terminal ends."""
        width = shutil.get_terminal_size().columns - 1
        text = line[:width].encode(self._stream.encoding or "ascii", "replace").decode(self._stream.encoding)
        self._stream.write(f"\r{text}\x1b[K" if line else "\r\x1b[K")
        self._stream.flush()


def round_up(seconds: float) -> int:
    return int(-(-seconds // 1))


def _score(round: Round) -> str:
    for name in METRICS:
        if (value := round.metrics.get(name)) is not None:
            return f"{name.replace('_', ' ')} {value:.3f}"
    return ""


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
