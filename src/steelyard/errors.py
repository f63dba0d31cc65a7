"""Exceptions. Messages are one sentence that says what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class SteelyardError(Exception):
    """Base class of all errors that steelyard raises."""


class InputError(SteelyardError, ValueError):
    """Invalid input: a spec, a data set, a client or a model that cannot be used."""


class ClientError(SteelyardError):
    """A client failed, and the run cannot continue without it."""

    def __init__(self, client: str, round: int, stage: str, reason: str) -> None:
        super().__init__(f"client {client!r} failed in round {round} while {stage}: {reason}")
        self.client, self.round, self.stage, self.reason = client, round, stage, reason


def unknown(what: str, given: str, valid: Iterable[str], of: str = "") -> InputError:
    """The error for an unknown name: suggests the closest valid name, or lists all of them."""
    options = sorted(valid)
    near = get_close_matches(given, options, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(options) or 'nothing'}."
    return InputError(f"unknown {what} {given!r}{of and ' of ' + of}: {hint}")
