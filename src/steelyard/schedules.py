"""Schedules of the learning rate: a factor on it, for each round or each step.

A schedule is called with the progress of a run and returns the factor. Any function that does so is one too.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from steelyard.errors import COUNT, NOT_NEGATIVE, POSITIVE, InputError, check_settings
from steelyard.texts import kebab

__all__ = ["Constant", "Cosine", "Exponential", "Linear", "Schedule", "Step"]

Changes = Literal["round", "step"]


class Progress(NamedTuple):
    """How far a client is: in step `step` of `steps` (from 0) of round `round` of `rounds` (from 1)."""

    round: int = 1
    rounds: int = 0
    """The planned number of rounds; 0 if it is not known."""
    step: int = 0
    steps: int = 1


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """A factor on the learning rate: a linear warm-up, then a decay that begins after it."""

    warmup: float = 0.0
    """The number of rounds in which the factor grows to 1."""
    changes: Changes = "round"
    """How often the factor changes: once in a round, the same for all clients, or in every step."""

    def __post_init__(self) -> None:
        where = f"schedule {kebab(type(self).__name__)!r}: "
        check_settings(where, self, warmup=NOT_NEGATIVE)
        if self.changes not in get_args(Changes):
            raise InputError(f"{where}changes must be 'round' or 'step', not {self.changes!r}.")

    def __call__(self, progress: Progress) -> float:
        """The factor in a round, or in a step of it."""
        size = 1 / max(progress.steps, 1) if self.changes == "step" else 1.0
        begin = progress.round - 1 + (min(progress.step * size, 1.0) if self.changes == "step" else 0.0)
        warm = min(1.0, (begin + size) / self.warmup) if self.warmup else 1.0
        return warm * self.decay(max(0.0, begin - self.warmup), progress.rounds)

    @abstractmethod
    def decay(self, past: float, rounds: int) -> float:
        """The factor after `past` rounds without warm-up, which may be a fraction, of a run of `rounds`."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The learning rate stays the same."""

    def decay(self, past: float, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Step(Schedule):
    """Multiply the learning rate by `factor` every so many rounds."""

    every: int = 10
    factor: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings("schedule 'step': ", self, every=COUNT, factor=POSITIVE)

    def decay(self, past: float, rounds: int) -> float:
        return float(self.factor ** (past // self.every))


@dataclass(frozen=True)
class Exponential(Schedule):
    """Multiply the learning rate by `factor` every round."""

    factor: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings("schedule 'exponential': ", self, factor=POSITIVE)

    def decay(self, past: float, rounds: int) -> float:
        return float(self.factor**past)


@dataclass(frozen=True)
class _ToFinal(Schedule):
    """A decay that reaches `final` times the learning rate at the end of the run."""

    final: float = 0.0
    rounds: int | None = None
    """The number of rounds to the end, warm-up included (default: all rounds of the run)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"schedule {kebab(type(self).__name__)!r}: "
        check_settings(where, self, final=NOT_NEGATIVE, rounds=COUNT)

    def decay(self, past: float, rounds: int) -> float:
        total = self.rounds or rounds
        if not total:
            raise InputError(
                f"schedule {kebab(type(self).__name__)!r} needs the setting 'rounds', because the number of "
                "rounds of this run is not known."
            )
        share = min(1.0, past / max(total - self.warmup, 1.0))
        return self.final + (1 - self.final) * self.shape(share)

    @abstractmethod
    def shape(self, share: float) -> float:
        """From 1 to 0 while `share` goes from 0 to 1."""


@dataclass(frozen=True)
class Cosine(_ToFinal):
    """Decay to `final` times the learning rate along half a period of the cosine (Loshchilov, 2017)."""

    def shape(self, share: float) -> float:
        return (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class Linear(_ToFinal):
    """Decay to `final` times the learning rate along a straight line."""

    def shape(self, share: float) -> float:
        return 1 - share


AnySchedule = Schedule | Callable[[Progress], float]


def changes_within_rounds(schedule: AnySchedule) -> bool:
    """Whether the factor may change from step to step; a function may, so it is asked in every step."""
    return not isinstance(schedule, Schedule) or schedule.changes == "step"


def factors(schedule: AnySchedule, start: Progress) -> Iterator[float]:
    """The factors of the steps of a round, without end; `start` is the progress before its first step."""
    if changes_within_rounds(schedule):
        yield from (factor_of(schedule, start._replace(step=step)) for step in itertools.count())
    else:
        yield from itertools.repeat(factor_of(schedule, start))


def factor_of(schedule: AnySchedule, progress: Progress) -> float:
    """The factor of a schedule, checked if the schedule is a function of the user's own."""
    factor: Any = schedule(progress)
    if not isinstance(schedule, Schedule):
        factor = factor.item() if hasattr(factor, "item") else factor
        if wanted := NOT_NEGATIVE.wanted(factor):
            raise InputError(f"the factor that training.schedule returns must be {wanted}, not {factor!r}.")
    return float(factor)
