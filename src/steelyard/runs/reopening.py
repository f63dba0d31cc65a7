"""Open the folder of a recorded run again, to go on with it to the bits of an unbroken run."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from steelyard.errors import InputError
from steelyard.runs.folder import Lock, refuse_links
from steelyard.runs.reader import Run
from steelyard.runs.resuming import Check, last_state
from steelyard.runs.writer import Recorder
from steelyard.server.state import FederationState


class Reopened(NamedTuple):
    """A run that can go on."""

    recorder: Recorder
    state: FederationState | None
    """None: no round was saved."""
    changed: Sequence[str]
    """What was changed since the run began."""
    problems: Sequence[str]
    """Why newer states cannot be used."""


def is_finished(run: Run) -> bool:
    return run.meta.get("status") == "finished"


def goes_on(run: Run, rounds: int, asked: bool) -> bool:
    """Whether a finished run is to be trained on, until a later round. `asked`: the user said until when."""
    planned, done = run.meta.get("rounds"), run.last_round()
    if not asked and rounds < done:
        raise InputError(
            f"{run.path} has {done} rounds already, and this federation has {rounds}; to train it on, pass "
            f"`rounds={done + 10}`; to read it, use `steelyard.Run`."
        )
    if not asked and planned is not None and int(planned) != rounds:
        raise InputError(
            f"{run.path} was to have {planned} rounds, and this federation has {rounds}: pass "
            f"`rounds={rounds}` to go on until that round."
        )
    if rounds < done:
        raise InputError(
            f"{run.path} has {done} rounds already: `rounds` must be at least {done}, not {rounds}."
        )
    return asked and is_finished(run) and rounds > done


def would_differ(run: str, changed: Sequence[str], otherwise: str) -> InputError:
    """The error for a run that would go on with other numbers; `otherwise` is how to go on nevertheless."""
    return InputError(
        f"{run} would not end with the numbers of an unbroken run: {', '.join(changed)}; undo that, or "
        f"{otherwise}."
    )


def reopen(
    run: Run,
    changes: Callable[[Run], Sequence[str]],
    prepare: Callable[[], Check],
    anyway: bool,
    *,
    after_the_end: bool = False,
) -> Reopened | None:
    """Lock a run, check that nothing was changed, and find its last usable state.

    `prepare` is called when the folder is locked and nothing was changed; it returns what checks a state.
    With `anyway`, changes are only told. None: the run is finished, and is not to go on `after_the_end`.
    """
    if is_finished(run) and not after_the_end:
        return None
    lock = Lock(run.path.resolve())
    try:
        if after_the_end or not is_finished(run):  # by another process, just now
            return _locked(run, changes, prepare, anyway, lock)
    except BaseException:
        lock.release()
        raise
    lock.release()
    return None


def _locked(
    run: Run,
    changes: Callable[[Run], Sequence[str]],
    prepare: Callable[[], Check],
    anyway: bool,
    lock: Lock,
) -> Reopened:
    refuse_links(lock.folder)
    changed = changes(run)
    if changed and not anyway:
        raise would_differ(str(run.path), changed, "continue with `--anyway` (in Python: `anyway=True`)")
    state, problems = last_state(run, prepare())
    recorder = Recorder(run.path, after=0 if state is None else state.round, lock=lock)
    return Reopened(recorder, state, changed, problems)
