"""Exceptions. Messages are one sentence that says what to do."""

import math
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import NamedTuple


class SteelyardError(Exception):
    """Base class of all errors that steelyard raises."""


class InputError(SteelyardError, ValueError):
    """Invalid input: a spec, a data set, a client or a model that cannot be used."""


class ClientError(SteelyardError):
    """A client failed, and the run cannot continue without it."""

    def __init__(self, client: str, round: int, stage: str, reason: str) -> None:
        super().__init__(f"client {client!r} failed in round {round} while {stage}: {reason}")
        self.client, self.round, self.stage, self.reason = client, round, stage, reason


class SteelyardWarning(UserWarning):
    """Something that a user should know about a run, although it goes on or came to its end."""


class ParticipationWarning(SteelyardWarning):
    """Clients were often rejected or failed, or rounds were skipped; the others made the model."""


class ObserverWarning(SteelyardWarning):
    """An observer of a run failed; the run goes on without it."""


class SelectionWarning(SteelyardWarning):
    """A model is chosen on data that should only test it."""


LARGEST = sys.float_info.max


class Range(NamedTuple):
    """The numbers that a setting may have."""

    words: str
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    """Whether `low` itself is too low."""
    whole: bool = False

    def wanted(self, value: object) -> str:
        """What the value should be instead; empty if it is in the range. Numbers of numpy are numbers too."""
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return "a whole number" if self.whole else "a number"
        number = float(value)
        if not math.isfinite(number) and self.high == LARGEST:
            return "a finite number"
        valid = self.low <= number <= self.high and not (self.above and number == self.low)
        return "" if valid else self.words


POSITIVE = Range("greater than 0", above=True, high=LARGEST)
NOT_NEGATIVE = Range("at least 0", high=LARGEST)
UP_TO_INFINITY = Range("greater than 0", above=True)
FINITE = Range("a finite number", low=-LARGEST, high=LARGEST)
SHARE = Range("from 0 to 1", high=1.0)
COUNT = Range("at least 1", low=1, whole=True)
COUNT_OR_ZERO = Range("at least 0", whole=True)


def check_settings(where: str, holder: object, **ranges: Range) -> None:
    """Raise an InputError for the first setting of an object that is out of its range; None is in all."""
    for name, range in ranges.items():
        check_setting(f"{where}{name}", getattr(holder, name), range)


def check_setting(name: str, value: object, range: Range) -> None:
    if value is not None and (wanted := range.wanted(value)):
        raise InputError(f"{name} must be {wanted}, not {value!r}.")


def unknown(what: str, given: str, valid: Iterable[str], of: str = "") -> InputError:
    """The error for an unknown name: suggests the closest valid name, or lists all of them."""
    options = sorted(valid)
    near = get_close_matches(given, options, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(options) or 'nothing'}."
    return InputError(f"unknown {what} {given!r}{of and ' of ' + of}: {hint}")
