"""Run a spec, or resume a recorded run."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import steelyard
from steelyard.components import Choice
from steelyard.errors import InputError, warn_caller
from steelyard.observers.base import named_observers
from steelyard.runs import reopening
from steelyard.runs.folder import SPEC
from steelyard.runs.reader import Run
from steelyard.runs.resuming import Check, changes, spec_checksum
from steelyard.runs.writer import Recorder, new_recorder
from steelyard.server.callbacks import Callback
from steelyard.server.observing import Observer
from steelyard.server.result import Result
from steelyard.server.state import FederationState
from steelyard.simulation import SimulatedFederation
from steelyard.specs import gate
from steelyard.specs.building import build, build_observers, spec_warnings
from steelyard.specs.schema import Spec, load_spec


def run(
    spec: str | Path | Mapping[str, Any] | Spec | None = None,
    *observers: Observer | Choice,
    out: str | Path | None = "runs",
    trust: bool = False,
    callbacks: Callback | Sequence[Callback] | None = None,
    progress: bool = True,
    **overrides: Any,
) -> Result:
    """Run a preset, a TOML file or a table, and record it in a new folder under `out` (None: do not record).

    A file that names code of its own (`module:factory`) runs only with `trust`, or in a trusted folder.
    Callbacks are called with every completed round, its model and state (`RoundEvent`), and may stop the run.
    Without `progress`, there is no progress bar, see `Federation.run`.

    >>> result = run("fedprox", rounds=10, objective={"mu": 0.1}, **{"data.clients": 20})
    >>> result.history[-1]["accuracy"], result.clients[-1]["weight"]
    """
    resolved = load_spec(spec.model_dump() if isinstance(spec, Spec) else spec, overrides, trust)
    federation = build(resolved)
    named = (*named_observers(observers), *build_observers(resolved))
    if not isinstance(spec, Spec):  # a spec that a program made is as it should be
        for text in spec_warnings(resolved):
            warn_caller(text)
    recorder = None if out is None else recorder_for(resolved, Path(out))
    return federation.run(*named, recorder=recorder, callbacks=callbacks, progress=progress)


def resume(
    path: str | Path,
    *observers: Observer | Choice,
    anyway: bool = False,
    trust: bool = False,
    callbacks: Callback | Sequence[Callback] | None = None,
    progress: bool = True,
) -> Result:
    """Continue a run that was interrupted or killed; it ends with the bits of an uninterrupted run.

    A finished run is not changed: its result is read back. `anyway` continues although the spec was edited,
    or with another version of steelyard or another environment, which may change the numbers. `trust` runs
    the code that somebody else's run names.
    """
    watching = named_observers(observers)
    reopened = reopen(path, anyway, trust)
    if reopened is None:
        return _read_result(Run(path), trust)
    for note in reopened.notes:
        warn_caller(note)
    return _continue(reopened, watching, progress, callbacks)


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
        raise InputError(
            f"{path} has no {SPEC}: a program made it, and only that program can go on with it; call "
            f"`federation.resume({str(path)!r})` there."
        )
    built: list[tuple[SimulatedFederation, Sequence[Observer]]] = []

    def prepare() -> Check:
        spec = load_spec(recorded.path / SPEC, trust=trust)
        built.append((build(spec), build_observers(spec)))
        return partial(built[0][0].read_states, run=recorded.path)

    found = reopening.reopen(recorded, changes, prepare, anyway)
    if found is None:
        return None
    recorder, state, changed, problems = found
    if changed:  # without a fingerprint, it is not taken for a run of its spec
        edited = (recorded.path / SPEC).read_bytes()
        recorder.note(anyway="; ".join(changed), fingerprint="", spec=spec_checksum(edited))
    return Reopened(built[0][0], recorder, state, (*changed, *problems), built[0][1])


def _continue(
    reopened: Reopened,
    observers: Sequence[Observer],
    progress: bool,
    callbacks: Callback | Sequence[Callback] | None = None,
) -> Result:
    federation, recorder, state, _, named = reopened
    return federation.run(
        *observers, *named, recorder=recorder, state=state, callbacks=callbacks, progress=progress
    )


def _read_result(run: Run, trust: bool) -> Result:
    """The result of a finished run, read back from its folder."""
    return build(load_spec(run.path / SPEC, trust=trust)).read_result(run)


def recorder_for(spec: Spec, out: Path) -> Recorder:
    """A recorder in a new folder under `out`."""
    meta = {"name": spec.name, "fingerprint": spec.fingerprint(), "version": steelyard.__version__}
    toml, table = spec.to_toml(), spec.model_dump()
    return new_recorder(out, f"{spec.name}-s{spec.seed}", lambda file: gate.sealed(toml, table, file), meta)
