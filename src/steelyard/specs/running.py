"""Run a spec, or resume a recorded run."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import steelyard
from steelyard.errors import InputError, SteelyardWarning
from steelyard.runs.folder import SPEC, Lock, refuse_links
from steelyard.runs.reader import Run
from steelyard.runs.resuming import changes, last_state, spec_checksum
from steelyard.runs.writer import Recorder, new_recorder
from steelyard.server.federation import Observer
from steelyard.server.result import Result
from steelyard.server.state import FederationState
from steelyard.simulation import SimulatedFederation
from steelyard.specs import gate
from steelyard.specs.building import build, build_observers, spec_warnings
from steelyard.specs.loading import load_model
from steelyard.specs.schema import Spec, load_spec


def run(
    spec: str | Path | Mapping[str, Any] | Spec | None = None,
    *observers: Observer,
    out: str | Path | None = "runs",
    trust: bool = False,
    progress: bool = True,
    **overrides: Any,
) -> Result:
    """Run a preset, a TOML file or a table, and record it in a new folder under `out` (None: do not record).

    A file that names code of its own (`module:factory`) runs only with `trust`, or in a trusted folder.
    Without `progress`, there is no progress bar, see `Federation.run`.

    >>> result = run("fedprox", rounds=10, objective={"mu": 0.1}, **{"data.clients": 20})
    >>> result.history[-1]["accuracy"], result.clients[-1]["weight"]
    """
    resolved = load_spec(spec.model_dump() if isinstance(spec, Spec) else spec, overrides, trust)
    federation = build(resolved)
    named = build_observers(resolved)
    if not isinstance(spec, Spec):  # a spec that a program made is as it should be
        for text in spec_warnings(resolved):
            warnings.warn(text, SteelyardWarning, stacklevel=2)
    recorder = None if out is None else recorder_for(resolved, Path(out))
    return federation.run(*observers, *named, recorder=recorder, progress=progress)


def resume(
    path: str | Path,
    *observers: Observer,
    anyway: bool = False,
    trust: bool = False,
    progress: bool = True,
) -> Result:
    """Continue a run that was interrupted or killed; it ends with the bits of an uninterrupted run.

    A finished run is not changed: its result is read back. `anyway` continues although the spec was edited,
    or with another version of steelyard or another environment, which may change the numbers. `trust` runs
    the code that somebody else's run names.
    """
    reopened = reopen(path, anyway, trust)
    if reopened is None:
        return _read_result(Run(path), trust)
    for note in reopened.notes:
        warnings.warn(note, stacklevel=2)
    return _continue(reopened, observers, progress)


def run_or_resume(spec: Spec, unfinished: Path | None, *observers: Observer, out: Path | None) -> Result:
    """Continue an unfinished run of this spec if that is possible; else run the spec from the beginning.

    There is no progress bar: the caller has one for all of its runs.
    """
    try:
        reopened = None if unfinished is None else reopen(unfinished)
    except InputError:  # another process writes to it, or it is damaged
        reopened = None
    return (
        run(spec, *observers, out=out, progress=False)
        if reopened is None
        else _continue(reopened, observers, False)
    )


class Reopened(NamedTuple):
    """What is needed to continue a run."""

    federation: SimulatedFederation
    recorder: Recorder
    state: FederationState | None
    """None: no round was saved."""
    notes: tuple[str, ...]
    """What the user should know: a damaged state, a changed environment."""
    observers: Sequence[Observer]
    """Those that the spec names."""


def reopen(path: str | Path, anyway: bool = False, trust: gate.Permission = False) -> Reopened | None:
    """Lock a recorded run, check that it can go on to the same bits, and find its last usable state.

    None: the run is finished.
    """
    recorded = Run(path)
    if not (recorded.path / SPEC).is_file():
        raise InputError(f"{path} has no {SPEC}: only a run that came from a spec can be resumed.")
    if _is_finished(recorded):
        return None
    lock = Lock(recorded.path.resolve())
    try:
        if not _is_finished(recorded):  # by another process, just now
            return _reopen(recorded, lock, anyway, trust)
    except BaseException:
        lock.release()
        raise
    lock.release()
    return None


def _reopen(recorded: Run, lock: Lock, anyway: bool, trust: gate.Permission) -> Reopened:
    refuse_links(lock.folder)
    changed = changes(recorded)
    if changed and not anyway:
        raise InputError(
            f"{recorded.path} would not end with the numbers of an unbroken run: {', '.join(changed)}; undo "
            "that, or continue with `--anyway` (in Python: `anyway=True`)."
        )
    spec = load_spec(recorded.path / SPEC, trust=trust)
    federation, observers = build(spec), build_observers(spec)
    state, problems = last_state(recorded, lambda state: federation.read_states(state, recorded.path))
    recorder = Recorder(recorded.path, after=0 if state is None else state.round, lock=lock)
    if changed:  # without a fingerprint, it is not taken for a run of its spec
        edited = (recorded.path / SPEC).read_bytes()
        recorder.note(anyway="; ".join(changed), fingerprint="", spec=spec_checksum(edited))
    return Reopened(federation, recorder, state, (*changed, *problems), observers)


def _is_finished(run: Run) -> bool:
    return run.meta.get("status") == "finished"


def _continue(reopened: Reopened, observers: Sequence[Observer], progress: bool) -> Result:
    federation, recorder, state, _, named = reopened
    return federation.run(*observers, *named, recorder=recorder, state=state, progress=progress)


def _read_result(run: Run, trust: bool) -> Result:
    """The result of a finished run, read back from its folder."""
    federation = build(load_spec(run.path / SPEC, trust=trust))
    state, _ = last_state(run, lambda state: federation.read_states(state, run.path))
    if state is None:
        raise InputError(f"{run.path} is finished, but has no saved state to read its result from.")
    own = partial(federation.model_of, state, states=federation.read_states(state, run.path))
    rows, model = (tuple(run.rounds), tuple(run.clients)), load_model(run, trust=trust)
    best = federation.best_of(state)
    return Result(*rows, model, state, own, run.path, reasons=run.reasons, best=best)


def recorder_for(spec: Spec, out: Path) -> Recorder:
    """A recorder in a new folder under `out`."""
    meta = {"name": spec.name, "fingerprint": spec.fingerprint(), "version": steelyard.__version__}
    toml, table = spec.to_toml(), spec.model_dump()
    return new_recorder(out, f"{spec.name}-s{spec.seed}", lambda file: gate.sealed(toml, table, file), meta)
