"""In a notebook a run shows a bar that is updated in place; elsewhere it prints nothing."""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from tracked_runs import small_run

from steelyard.observers import notebook
from steelyard.observers.facts import RunFacts
from steelyard.observers.notebook import NotebookBar, notebook_bar
from steelyard.types import Round


class Screen:
    """What the fake IPython shows, at one place of the notebook."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.kernel: object | None = object()

    def display(self, content: Any, display_id: bool = False) -> "Screen":
        assert display_id
        return self.update(content)

    def update(self, content: Any) -> "Screen":
        self.shown.append(content.data)
        return self


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    found = Screen()
    package, display = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: found  # type: ignore[attr-defined]
    display.HTML = lambda data: SimpleNamespace(data=data)  # type: ignore[attr-defined]
    display.display = found.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


def test_a_run_shows_its_rounds_and_the_bar_goes_away(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "SECONDS", 0.0)
    result = small_run(None)
    bars = [ElementTree.fromstring(f"<div>{text}</div>").find("progress") for text in screen.shown[:-1]]
    assert [(bar.attrib["value"], bar.attrib["max"]) for bar in bars if bar is not None] == [
        ("0", "2"),
        ("1", "2"),
        ("2", "2"),
    ]
    assert f"accuracy {result.accuracy:.3f}" in screen.shown[-2]
    assert screen.shown[-1] == ""


def test_it_is_updated_at_most_four_times_a_second(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(notebook.time, "monotonic", lambda: now)
    bar = NotebookBar()
    bar.begin(RunFacts("x", 1000))
    for number in range(1, 101):
        now += 0.01
        bar(Round(number, {}, ()))
    assert len(screen.shown) == 5  # one in the beginning, and four in a second


def test_names_are_escaped_and_an_interrupted_run_says_so(screen: Screen) -> None:
    bar = NotebookBar()
    bar.begin(RunFacts("<script>x</script>", 2, after=1))
    bar.end("interrupted")
    assert 'value="1"' in screen.shown[0]
    assert not any("<script>" in text for text in screen.shown)
    assert screen.shown[-1].endswith(": interrupted")


def test_outside_of_a_notebook_nothing_is_shown(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    screen.kernel = None  # IPython on a terminal
    assert notebook_bar() == ()
    monkeypatch.delitem(sys.modules, "IPython")
    small_run(None)
    assert screen.shown == []
    assert capfd.readouterr() == ("", "")
    assert "IPython" not in sys.modules
