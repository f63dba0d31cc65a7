"""On a terminal, a run that is started from Python shows a bar if it takes more than a second."""

import io
import sys

import pytest
from tracked_runs import small_run

from steelyard.observers.facts import RunFacts
from steelyard.observers.terminal_bar import TerminalBar, progress_bars
from steelyard.types import Round


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("STEELYARD_PROGRESS", raising=False)
    return Terminal()


def after(number: int, **metrics: float) -> Round:
    return Round(number, metrics, (), {})


def begun(terminal: Terminal, rounds: int = 10, after: int | None = None) -> tuple[TerminalBar, Clock]:
    clock = Clock()
    bar = TerminalBar(terminal, clock)
    bar.begin(RunFacts("mine", rounds, {}, None, after))
    return bar, clock


def test_a_long_run_shows_rounds_time_left_and_a_score_and_leaves_nothing(terminal: Terminal) -> None:
    bar, clock = begun(terminal)
    clock.now = 4.0
    bar(after(2, accuracy=0.5, loss=2.0))
    assert terminal.getvalue() == (
        "\rmine  ━━━━────────────────  round  2 of 10  0:00:16 left  accuracy 0.500\x1b[K"
    )
    clock.now = 6.0
    bar(after(3, loss=1.5))  # the model of this round was not scored
    assert terminal.getvalue().endswith("round  3 of 10  0:00:14 left  loss 1.500\x1b[K")
    bar.end("finished")
    assert terminal.getvalue().endswith("\x1b[K\r\x1b[K")


def test_a_short_run_writes_nothing(terminal: Terminal) -> None:
    bar, clock = begun(terminal)
    for number in range(1, 11):
        clock.now = number / 11
        bar(after(number))
    bar.end("finished")
    assert terminal.getvalue() == ""


def test_many_short_rounds_are_few_lines(terminal: Terminal) -> None:
    bar, clock = begun(terminal, rounds=1000)
    for number in range(1, 1001):
        clock.now = 1 + number / 1000
        bar(after(number))
    assert terminal.getvalue().count("\r") <= 6


def test_the_time_left_of_a_resumed_run_counts_its_own_rounds(terminal: Terminal) -> None:
    bar, clock = begun(terminal, rounds=20, after=10)
    clock.now = 5.0
    bar(after(15))
    assert "round 15 of 20  0:00:05 left" in terminal.getvalue()


def test_a_long_name_and_a_narrow_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    bar, clock = TerminalBar(terminal, clock := Clock()), clock
    bar.begin(RunFacts("long\x1b[31m" + "g" * 100, 5, {}, None, None))
    clock.now = 2.0
    bar(after(1))
    line = terminal.getvalue()[1:].removesuffix("\x1b[K")
    assert len(line) == 39
    assert "\x1b" not in line


def test_where_bars_are_shown(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    assert [type(each) for each in progress_bars(True)] == [TerminalBar]
    assert progress_bars(False) == ()
    monkeypatch.setenv("STEELYARD_PROGRESS", "0")
    assert progress_bars(True) == ()
    monkeypatch.setenv("STEELYARD_PROGRESS", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert progress_bars(True) == ()
    monkeypatch.setenv("TERM", "xterm")
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert progress_bars(True) == ()


def test_runs_from_python_have_the_bar(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.observers.terminal_bar.SECONDS_BEFORE", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    small_run(None)
    assert "round 1 of 2" in terminal.getvalue()
    before = terminal.getvalue()
    small_run(None, progress=False)
    assert terminal.getvalue() == before
