"""The live view as it is drawn."""

import io
import re

import pytest
from rich.console import Console

from steelyard.report.console import SafeConsole
from steelyard.report.grid_tables import cells_progress
from steelyard.report.live_figures import Seen
from steelyard.report.progress import Headline, Pace, View, clock_text, progress
from steelyard.types import Round

LONG = "20261115-220936-a-very-long-name-of-a-run-that-was-resumed-some-time-later-s0"
METRICS = {"accuracy": 0.913, "loss": 0.25, "client_accuracy_worst10": 0.85, "nll": 0.5, "used": 10.0}
HOSTILE = "\x1b[31m\x1b[2Jevil\nname " + "long" * 100


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_round(number: int, names: tuple[str, ...] = ("c0", "c1", "c2", "c3"), bad: int = 1) -> Round:
    rows = [
        {"client": name, "status": "used", "weight": 0.01 if place < bad else 0.33}
        for place, name in enumerate(names)
    ]
    return Round(number, METRICS | {"effective_clients": 9.0}, tuple(rows))


def a_view(title: str = "poisoned", rounds: int = 300, done: int = 123, **options: object) -> View:
    clock = Time()
    view = View(Headline(title, "round", Pace(clock), rounds), Seen(rounds))
    for number in range(1, done + 1):
        clock.now += 0.5
        view.headline.update(number, rounds)
        view.seen = view.seen.after(a_round(number, **options))
    return view


def drawn(view: View, width: int, **options: object) -> list[str]:
    console = SafeConsole(file=io.StringIO(), width=width, **{"color_system": None, **options})
    console.print(view)
    return console.file.getvalue().splitlines()


def test_eighty_columns() -> None:
    first, second, third = drawn(a_view(), 80)
    assert re.fullmatch(r"poisoned  [━╸╺ ]+  round 123 of 300   0:01:28 left *", first)
    assert second.rstrip() == "scores        accuracy 0.913   loss 0.250   worst 10 % of clients 0.850"
    assert third.rstrip() == "weighed down  c0 0.04 × an equal share"


def test_more_columns_have_more_figures_and_clients() -> None:
    names = tuple(f"hospital-number-{place}" for place in range(10))
    narrow, wide = (drawn(a_view(names=names, bad=7), width) for width in (80, 200))
    assert "effective clients 9.0 of 10" in wide[1]
    assert "effective" not in narrow[1]
    assert narrow[2].count("×") == 2
    assert wide[2].count("×") == 6
    assert wide[2].rstrip().endswith("an equal share, +1 more")


@pytest.mark.parametrize("title", ["a", LONG, HOSTILE, "漢字" * 40], ids=["short", "long", "hostile", "wide"])
def test_nothing_wraps_and_no_number_is_cut(title: str) -> None:
    names = (HOSTILE, "漢字" * 40, *(f"client-{place}" for place in range(1000)))
    view = a_view(title, 100_000, 2, names=names, bad=700)
    view.seen = view.seen.after(Round(3, {}, ({"client": HOSTILE, "status": HOSTILE, "weight": 0.0},)))
    for width in (*range(10, 130), 200):
        lines = [line.rstrip() for line in drawn(view, width)]
        assert len(lines) == (4 if width >= 40 else 1)
        assert not any(re.search(r"\d…$|\x1b", line) for line in lines)
        assert "of 100000" in lines[0] or width < 22
        assert lines[0].endswith(" left") or width < 40


def test_the_time_left_is_there_with_a_long_title() -> None:
    assert drawn(a_view(LONG), 80)[0].rstrip().endswith("round 123 of 300   0:01:28 left")


def test_without_colours_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = "".join(drawn(a_view(), 80, color_system="standard", force_terminal=True))
    assert re.search(r"\x1b\[36m", coloured)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = "".join(drawn(a_view(), 80, color_system="standard", force_terminal=True))
    assert not re.search(r"\x1b\[[\d;]*(3|4|9|10)\d[\d;]*m", plain)


def test_the_time_left_comes_from_recent_rounds() -> None:
    clock = Time()
    pace = Pace(clock, done=10)
    assert pace.left(20) is None
    clock.now += 8.0  # the first round is slow
    pace.tick(11)
    assert pace.left(20) == 72.0
    clock.now += 1.0
    pace.tick(12)
    assert pace.left(20) == 8.0
    clock.now += 0.5
    assert pace.left(20) == 7.5  # it runs down within a round
    clock.now += 100.0
    assert pace.left(20) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-:--:--"), (0.4, "0:00:00"), (59.6, "0:01:00"), (3725.0, "1:02:05"), (360_000.0, "100:00:00")],
)
def test_clock(seconds: float | None, text: str) -> None:
    assert clock_text(seconds) == text


def live(width: int = 80, **options: object) -> Console:
    return SafeConsole(file=io.StringIO(), force_terminal=True, width=width, color_system=None, **options)


def test_progress_shows_the_last_round_on_a_terminal_and_removes_itself() -> None:
    console = live()
    with progress(console, "mine", 5, done=1) as observe:
        observe(a_round(2))
        observe(Round(3, {}, ()))  # not evaluated: the scores before stay
    text = console.file.getvalue()
    for part in ("mine", "round 1 of 5", "round 3 of 5", "accuracy 0.913", "c0 0.04 ×"):
        assert part in text
    assert text.endswith("\x1b[2K") or "\x1b[1A\x1b[2K" in text[-60:]


def test_without_a_terminal_there_is_one_line_in_ten_seconds() -> None:
    console, clock = SafeConsole(file=io.StringIO(), width=80), Time()
    with progress(console, "mine", 60, clock=clock) as observe:
        for number in range(1, 25):
            clock.now += 1.0
            observe(a_round(number))
    lines = console.file.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["mine: round 10 of 60", "mine: round 20 of 60"]
    assert lines[0] == (
        "mine: round 10 of 60, 0:00:50 left; accuracy 0.913, loss 0.250, worst 10 % of clients 0.850; "
        "weighed down: c0 0.04 × an equal share"
    )


def test_short_runs_are_silent_without_a_terminal_and_on_a_dumb_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for console in (SafeConsole(file=io.StringIO()), live()):
        with progress(console, "mine", 5) as observe:
            observe(a_round(1))
        assert console.file.getvalue() == ""


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_bar_of_a_grid_fits(width: int) -> None:
    console = live(width)
    with cells_progress(console, LONG) as watch:
        watch(0, 48)
        watch(12, 48)
    text = console.file.getvalue()
    assert "run 12 of 48" in text
    assert "left" in text
    assert all(len(re.sub(r"\x1b\[[\d;?]*\w", "", line)) <= width for line in re.split("[\r\n]", text))
