"""Exceptions. Messages are one sentence that says what to do."""

import math
import sys
import warnings
from collections.abc import Iterable, Mapping
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
WHOLE = Range("a whole number", low=-math.inf, whole=True)
COUNT_OR_ZERO = Range("at least 0", whole=True)


def check_settings(where: str, holder: object, **ranges: Range) -> None:
    """Raise an InputError for the first setting of an object that is out of its range; None is in all."""
    for name, range in ranges.items():
        check_setting(f"{where}{name}", getattr(holder, name), range)


def check_setting(name: str, value: object, range: Range) -> None:
    if value is not None and (wanted := range.wanted(value)):
        raise InputError(f"{name} must be {wanted}, not {value!r}.")


OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "adversary": ("adversaries.count",),
    "alie": ("a-little-is-enough",),
    "attackers": ("adversaries.count",),
    "auc": ("auroc",),
    "average": ("mean",),
    "avg": ("mean",),
    "bce": ("binary-cross-entropy",),
    "byzantine": ("adversaries.count",),
    "ce": ("cross-entropy",),
    "combiners": ("combining",),
    "cuda": ("vectorized",),
    "device": ("engine",),
    "eta": ("lr",),
    "fedavg": ("mean", "samples"),
    "fedprox": ("proximal",),
    "gpu": ("vectorized",),
    "ipm": ("inner-product",),
    "learning-rate": ("lr",),
    "local-epochs": ("epochs",),
    "local-steps": ("steps",),
    "loss": ("objective",),
    "losses": ("objectives",),
    "mae": ("mean-absolute-error",),
    "mse": ("squared-error",),
    "network": ("model",),
    "noise": ("gaussian",),
    "non-iid": ("dirichlet",),
    "noniid": ("dirichlet",),
    "num-clients": ("clients",),
    "num-rounds": ("rounds",),
    "random-noise": ("gaussian",),
    "rfa": ("geometric-median",),
}
"""What papers and other programs call things that have another name here."""
ALIKE = 0.7  # of names that may be misspellings of each other: ratio of `difflib`, from 0 to 1
MIN_ALIKE = 4  # letters; shorter names are alike by chance
MAX_HINTS = 3


def unknown(
    what: str, given: str, valid: Iterable[str], of: str = "", also: Iterable[str] = ()
) -> InputError:
    """The error for an unknown name: suggests the valid name that may be meant, or lists all of them.

    Names in `also` are suggested, but not listed.
    """
    options = sorted(valid) if isinstance(valid, set | frozenset) else list(valid)
    near = nearest(given, [*options, *also])
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "there are none."
    if options and not near:
        hint = f"choose from {', '.join(sorted(options))}."
    return InputError(f"unknown {what} {given!r}{of and ' of ' + of}: {hint}")


def nearest(given: str, options: Iterable[str]) -> list[str]:
    """The options that may be meant by a name that is none of them, in their order.

    Case, `-` and `_` do not count. Of keys such as `training.lr`, the last part counts as well.
    """
    wanted, names = _plain(given), {option: _plain(option) for option in options}
    root, last = wanted.partition(".")[0], wanted.rpartition(".")[2]
    ends = {option: name.rpartition(".")[2] for option, name in names.items()}
    meant = {*OTHER_NAMES.get(wanted, ()), *OTHER_NAMES.get(last, ())}
    inside = wanted if len(wanted) > 2 else "-"  # shorter words are in many names by chance
    tries: tuple[list[str], ...] = (
        [option for option, name in names.items() if name == wanted],
        [option for option in names if option in meant or ends[option] in meant],
        [option for option, end in ends.items() if "." in option and end == last],
        _slips(wanted, names),
        _slips(last, ends),
        _alike(last, ends),
        [option for option, end in ends.items() if end.startswith(inside) or inside in end.split("-")],
    )
    found = next(filter(None, tries), [])
    beside = [option for option in found if names[option].startswith(f"{root}.")]
    return (beside or found)[:MAX_HINTS]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")


def _slips(given: str, names: Mapping[str, str]) -> list[str]:
    """The option that is one slip away: a letter left out, added or changed, or two swapped."""
    found = [option for option, name in names.items() if len(given + name) > 2 and _is_slip(given, name)]
    found.sort(key=lambda option: sorted(names[option]) != sorted(given))  # those with the same letters first
    return found[:1]


def _is_slip(given: str, name: str) -> bool:
    same = [left == right for left, right in zip(given, name, strict=False)]
    start = [*same, False].index(False)
    one, other = given[start:], name[start:]
    if not one or not other:
        return len(one + other) == 1
    changes = ((one[1:], other[1:]), (one[1:], other), (one, other[1:]), (one[1::-1] + one[2:], other))
    return any(left == right for left, right in changes)


def _alike(given: str, names: Mapping[str, str]) -> list[str]:
    close = get_close_matches(given, names.values(), n=1, cutoff=ALIKE) if len(given) >= MIN_ALIKE else []
    return [option for option, name in names.items() if name in close][:1]


def warn_caller(message: str, category: type[SteelyardWarning] = SteelyardWarning) -> None:
    """Warn at the line of the user's code that called steelyard."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "steelyard":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
