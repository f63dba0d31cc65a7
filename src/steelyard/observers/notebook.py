"""A progress bar in a notebook. Outside of notebooks nothing is shown, and IPython is not imported."""

import html
import importlib
import sys
import time
from typing import Any

from steelyard.observers.base import Tracker
from steelyard.observers.facts import RunFacts
from steelyard.types import Round

SECONDS = 0.25  # between two updates


def notebook_bar() -> "tuple[NotebookBar, ...]":
    """The bar, if this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return (NotebookBar(),) if getattr(shell, "kernel", None) is not None else ()


class NotebookBar(Tracker):
    """A bar that is updated in place and goes away when the run has finished."""

    def __init__(self) -> None:
        self._due = 0.0
        self._display: Any = None

    def begin(self, facts: RunFacts) -> None:
        shown = importlib.import_module("IPython.display")
        self._html, self._name, self._rounds = shown.HTML, facts.name, facts.rounds
        self._display = shown.display(self._html(self._bar(facts.after or 0, "")), display_id=True)

    def __call__(self, round: Round) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + SECONDS
            shown = {name: round.metrics.get(name) for name in ("accuracy", "loss")}
            scores = [f"{name} {value:.3f}" for name, value in shown.items() if value is not None]
            self._display.update(self._html(self._bar(round.number, " · ".join(scores))))

    def end(self, status: str) -> None:
        text = "" if status == "finished" else f"{html.escape(self._name)}: {status}"
        self._display.update(self._html(text))

    def _bar(self, round: int, scores: str) -> str:
        return (
            f'<progress value="{round}" max="{self._rounds}"></progress> {html.escape(self._name)} · '
            f"round {round} of {self._rounds} {html.escape(scores)}"
        )
