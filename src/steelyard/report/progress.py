"""The terminal while a run goes on: rounds, time left, scores, and the clients that are weighed down."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from steelyard.report.live_figures import (
    Seen,
    rejections,
    scores,
    shortened,
    weighed_down,
)
from steelyard.report.terminal import sparkline
from steelyard.server.observing import Observer
from steelyard.types import Round

REFRESHES = 8
"""How often a second the view is drawn, however fast the rounds are."""
SECONDS_BETWEEN_LINES = 10.0
"""Where there is no terminal."""
GAP = 2
MIN_BAR, GOOD_BAR, MAX_BAR = 4, 20, 60
MIN_TITLE = 12
LABEL = 14
MIN_WIDTH = 40
"""In fewer columns, the view is its headline."""
RECENT = 50
NONE = "none"

Clock = Callable[[], float]


class Pace:
    """How long the rest takes, from when the last `RECENT` rounds, or runs, were complete."""

    def __init__(self, clock: Clock, done: int = 0) -> None:
        self.clock, self.done = clock, done
        self._ticks = deque([(clock(), done)], maxlen=RECENT)

    def tick(self, done: int) -> None:
        self._ticks.append((self.clock(), done))

    def left(self, total: int) -> float | None:
        """Seconds, or None as long as nothing is complete."""
        ticks = list(self._ticks)
        (start, first), (end, done) = ticks[1 if len(ticks) > 2 else 0], ticks[-1]  # the first one is slow
        if done <= first:
            return None
        return max(0.0, (end - start) / (done - first) * (total - done) - (self.clock() - end))


class Headline:
    """One line: a title, a bar, how much is done and the time left. It fits any width."""

    def __init__(self, title: str, unit: str, pace: Pace, total: int = 0, waiting: str = "") -> None:
        self.title, self.unit, self.pace, self.waiting = title, unit, pace, waiting
        self.done, self.total = pace.done, total

    def update(self, done: int, total: int) -> None:
        self.pace.tick(done)
        self.done, self.total = done, total

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        count = f"{self.unit} {self.done:{len(str(self.total))}} of {self.total}"
        count = count if self.total else self.waiting
        left = f"{clock_text(self.pace.left(self.total)):>8} left"
        room = width - cell_len(count) - cell_len(left) - 2 * GAP
        title = shortened(self.title, max(room - GAP - GOOD_BAR, MIN_TITLE))
        bar = min(room - GAP - cell_len(title), MAX_BAR)
        line = Table.grid(padding=(0, GAP, 0, 0))
        cells: list[Text | ProgressBar] = [Text(count), Text(left, "dim")]
        if room >= cell_len(title):
            cells = [Text(title, "bold"), *cells]
        if bar >= MIN_BAR:
            cells.insert(
                1,
                ProgressBar(self.total or None, self.done, bar, complete_style="cyan", finished_style="cyan"),
            )
        for _ in cells:
            line.add_column(no_wrap=True)
        line.add_row(*cells)
        yield line if room >= 0 else Text(count if cell_len(count) <= width else "")


class View:
    """The headline of a run, and below it the scores and the clients to look at."""

    def __init__(self, headline: Headline, seen: Seen) -> None:
        self.headline, self.seen = headline, seen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        seen, width = self.seen, options.max_width - LABEL
        yield self.headline
        if not seen.metrics or options.max_width < MIN_WIDTH:
            return
        yield _labelled("scores", _scores(seen, width))
        yield _labelled("weighed down", Text(weighed_down(seen, width) or NONE))
        if rejected := rejections(seen, width):
            yield _labelled("rejected", Text(rejected))


def _labelled(label: str, text: Text) -> Text:
    return Text.assemble((f"{label:{LABEL}}", "dim"), text, no_wrap=True, overflow="ellipsis")


def _scores(seen: Seen, width: int) -> Text:
    """As many scores as fit, and the course of the accuracy where there is space."""
    line = Text()
    for label, value in scores(seen):
        part = Text.assemble((f"{label} ", "dim"), (value, "cyan"))
        if line.cell_len + 3 + part.cell_len > width:
            break
        line = Text("   ").join([line, part]) if line else part
    values = [seen.trend[part] for part in sorted(seen.trend)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low < high:
        bars = sparkline([(value - low) / (high - low) for value in values])
        course = Text.assemble(("   course ", "dim"), (bars, "cyan"), (f" {low:.3f} to {high:.3f}", "dim"))
        line = Text.assemble(line, course) if line.cell_len + course.cell_len <= width else line
    return line


def clock_text(seconds: float | None) -> str:
    """Hours, minutes and seconds."""
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def progress(
    console: Console, title: str, rounds: int, done: int = 0, clock: Clock = time.monotonic
) -> Iterator[Observer]:
    """A live view of a run, from round `done` on. Yields the observer to call after each round.

    Where there is no terminal, it is one line every ten seconds.
    """
    headline = Headline(title, "round", Pace(clock, done), rounds)
    view = View(headline, Seen(rounds, done))
    is_live = is_drawn(console)
    due = clock() + SECONDS_BETWEEN_LINES

    def observe(round: Round) -> None:
        nonlocal due
        headline.update(round.number, rounds)
        view.seen = view.seen.after(round)
        if not is_live and clock() >= due:
            due = clock() + SECONDS_BETWEEN_LINES
            console.print(Text(_plain_line(view)), soft_wrap=True)

    with drawn(console, view):
        yield observe


def is_drawn(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def drawn(console: Console, view: Headline | View) -> Iterator[None]:
    """Draw a view several times a second, on a terminal; nothing of it stays at the end."""
    if not is_drawn(console):
        yield
        return
    with Live(view, console=console, refresh_per_second=REFRESHES, transient=True):
        yield


def _plain_line(view: View) -> str:
    """All that the view says, for a log."""
    headline, seen = view.headline, view.seen
    left = clock_text(headline.pace.left(headline.total))
    values = ", ".join(f"{label} {value}" for label, value in scores(seen)[:3])
    parts = [f"{shortened(headline.title, 40)}: round {seen.number} of {seen.rounds}, {left} left", values]
    parts += [f"weighed down: {text}"] if (text := weighed_down(seen, 60)) else []
    parts += [f"rejected: {text}"] if (text := rejections(seen, 60)) else []
    return "; ".join(filter(None, parts))
