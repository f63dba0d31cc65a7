"""The life of an observer: it may be told how a run begins, then every round, then how the run ended."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from steelyard.components import Choice, as_choice, build
from steelyard.errors import InputError, ObserverWarning, warn_caller
from steelyard.observers.facts import RunFacts
from steelyard.runs.reader import Run
from steelyard.runs.writer import status_after
from steelyard.server.observing import Observer
from steelyard.server.reasons import one_line
from steelyard.texts import shown
from steelyard.types import Round

log = logging.getLogger("steelyard.runs")


class Tracker(ABC):
    """An observer that is also told how a run begins and ends.

    If it fails, it is dropped with a warning, and the run goes on. An `InputError` in `begin` is a mistake of
    the user and is raised before the first round. Other observers are plain functions: their errors end the
    run.
    """

    def begin(self, facts: RunFacts) -> None:  # noqa: B027 - optional
        """Called once before the first round."""

    @abstractmethod
    def __call__(self, round: Round) -> None:
        """Called with every completed round."""

    def end(self, status: str) -> None:  # noqa: B027 - optional
        """Called once after the run: it has "finished", was "interrupted" or has "failed"."""


def named_observers(observers: Iterable[Observer | Choice]) -> tuple[Observer, ...]:
    """Observers, which may be given by name."""
    return tuple(map(_observer, observers))


def _observer(given: Observer | Choice) -> Observer:
    if isinstance(given, str | Mapping):
        found: Observer = build("observers", as_choice("observer", given))
        return found
    if isinstance(given, type):
        raise InputError(
            f"the observer {given.__name__} is a class, not an object of it: write {given.__name__}()."
        )
    if not callable(given):
        raise InputError(
            f"an observer must be a function of a round, a name such as 'csv', or an object of "
            f"steelyard.observers, not {shown(given)}."
        )
    return given


class Watching:
    """The observers of a run. As a context, it ends the trackers that `begin` has begun.

    The context is around the one that records the run: trackers end when the record is complete.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers: list[Observer] = [
            _Guarded(each) if isinstance(each, Tracker) else each for each in observers
        ]

    def begin(self, facts: RunFacts) -> None:
        """Begin the trackers. In a resumed run, they are told of the last completed round once more.

        The run may have been interrupted when the round was recorded, but not yet told to all of them.
        """
        _log_beginning(facts)
        last = None
        if facts.folder is not None and facts.after:
            last, facts = recorded_round(facts.folder, facts.after), replace(facts, after=facts.after - 1)
        for each in self.observers:
            if isinstance(each, _Guarded):
                each.begin(facts)
                if last is not None:
                    each(last)

    def __enter__(self) -> "Watching":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.observers:
            if isinstance(each, _Guarded):
                each.end(status_after(kind))


def _log_beginning(facts: RunFacts) -> None:
    start = "begins" if facts.after is None else f"goes on after round {facts.after}"
    place = "not recorded" if facts.folder is None else f"recorded in {facts.folder}"
    log.info("%s %s: %d rounds, %s", facts.name, start, facts.rounds, place)


def recorded_round(folder: Path, number: int) -> Round | None:
    """A round as it was told to observers, from the record; None if the record begins after it."""
    rows = Run(folder).rows_of(number)
    if not rows["rounds"]:
        return None
    known = {
        table: [{key: value for key, value in row.items() if value is not None} for row in found]
        for table, found in rows.items()
    }
    for row in (row for found in known.values() for row in found):
        row.pop("round")
    (metrics,), (seconds,) = known["rounds"], known["timings"]
    return Round(number, metrics, tuple(known["clients"]), seconds)


class _Guarded:
    """A tracker whose failures do not reach the run."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.active = tracker, False

    def begin(self, facts: RunFacts) -> None:
        try:
            self.tracker.begin(facts)
            self.active = True
        except InputError:
            raise
        except Exception as error:
            self._drop(error)

    def __call__(self, round: Round) -> None:
        self._try(lambda: self.tracker(round))

    def end(self, status: str) -> None:
        self._try(lambda: self.tracker.end(status))

    def _try(self, step: Callable[[], None]) -> None:
        if self.active:
            try:
                step()
            except Exception as error:
                self._drop(error)

    def _drop(self, error: Exception) -> None:
        self.active = False
        name, reason = type(self.tracker).__name__, one_line(f"{type(error).__name__}: {error}")
        text = f"the observer {name} failed, and the run goes on without it ({reason})."
        warn_caller(text, ObserverWarning)
