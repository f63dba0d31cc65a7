"""From where a recorded run can go on: checks before anything is changed."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from steelyard.errors import InputError
from steelyard.runs.environment import changes_since
from steelyard.runs.folder import ENVIRONMENT, SPEC, states_in
from steelyard.runs.reader import Run
from steelyard.runs.state_file import load_state
from steelyard.server.state import FederationState

Check = Callable[[FederationState], object]
"""Raises an InputError if a state does not fit the federation, or private states of its round are damaged."""


def spec_checksum(spec: bytes) -> str:
    """What a record keeps of its spec, to notice that the file was edited."""
    return hashlib.sha256(spec).hexdigest()


def changes(run: Run) -> list[str]:
    """What has changed since the run began and can change its numbers, each in a few words."""
    edited = spec_checksum((run.path / SPEC).read_bytes()) != run.meta.get("spec")
    return [*([f"{SPEC} was edited"] if edited else []), *changes_since(run.path / ENVIRONMENT)]


def last_state(run: Run, check: Check) -> tuple[FederationState | None, list[str]]:
    """The newest state from which the run can go on, and why newer ones cannot be used.

    None: no state was ever saved, and the run begins again. If there are states, but none that can be used,
    this is an error: rounds are lost.
    """
    problems: list[str] = []
    for number, path in reversed(states_in(run.path).items()):
        try:
            return _usable(run, number, path, check), problems
        except InputError as error:
            problems.append(str(error))
    if problems:
        reasons = "; ".join(problem.removesuffix(".") for problem in problems)
        raise InputError(
            f"{run.path} cannot be resumed from any saved state, only run again from round 1 "
            f"(`steelyard run {run.path / SPEC}`): {reasons}."
        )
    return None, []


def _usable(run: Run, number: int, path: Path, check: Check) -> FederationState:
    state = load_state(path)
    if state.round != number:
        raise InputError(f"{path} is a state after round {state.round}; it was renamed.")
    if not run.has_rounds_up_to(number):
        raise InputError(f"{path} is newer than the record, which lacks rounds up to {number}.")
    check(state)
    return state
