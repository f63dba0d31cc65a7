"""Run a spec, or resume a recorded run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import steelyard
from steelyard.errors import InputError
from steelyard.runs.reader import SPEC, STATE, Run
from steelyard.runs.state_file import load_state
from steelyard.runs.writer import Recorder, new_folder
from steelyard.server.federation import Observer
from steelyard.server.result import Result
from steelyard.server.state import FederationState
from steelyard.simulation import SimulatedFederation
from steelyard.specs.building import build
from steelyard.specs.schema import Spec, load_spec


def run(
    spec: str | Path | Mapping[str, Any] | Spec | None = None,
    *observers: Observer,
    out: str | Path | None = "runs",
    **overrides: Any,
) -> Result:
    """Run a preset, a TOML file or a table, and record it in a new folder under `out` (None: do not record).

    >>> result = run("fedprox", rounds=10, objective={"mu": 0.1}, **{"data.clients": 20})
    >>> result.history[-1]["accuracy"], result.clients[-1]["weight"]
    """
    resolved = load_spec(spec.model_dump() if isinstance(spec, Spec) else spec, overrides)
    federation = build(resolved)
    return federation.run(*observers, recorder=None if out is None else recorder_for(resolved, Path(out)))


def resume(path: str | Path, *observers: Observer) -> Result:
    """Continue a run that was interrupted or killed; it ends with the bits of an uninterrupted run."""
    federation, recorder, state = reopen(path)
    result = federation.run(*observers, recorder=recorder, state=state)
    recorded = Run(path)
    return replace(result, history=tuple(recorded.rounds), clients=tuple(recorded.clients))


def reopen(path: str | Path) -> tuple[SimulatedFederation, Recorder, FederationState | None]:
    """The federation of a recorded run, its recorder, and the last saved state (None: no round was saved)."""
    folder = Run(path).path
    if not (folder / SPEC).is_file():
        raise InputError(f"{path} has no {SPEC}: only a run that came from a spec can be resumed.")
    federation = build(load_spec(folder / SPEC))
    state = load_state(folder / STATE) if (folder / STATE).is_file() else None
    return federation, Recorder(folder, after=0 if state is None else state.round), state


def recorder_for(spec: Spec, out: Path) -> Recorder:
    """A recorder in a new folder under `out`."""
    meta = {"name": spec.name, "fingerprint": spec.fingerprint(), "version": steelyard.__version__}
    return Recorder(new_folder(out, f"{spec.name}-s{spec.seed}"), spec.to_toml(), meta)
