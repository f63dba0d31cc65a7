"""What a tracker is told before the first round, and where it may write."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from steelyard.errors import InputError
from steelyard.runs.writer import Recorder
from steelyard.server.state import FederationState

Parameters = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run before its first round."""

    name: str
    rounds: int
    """The planned number."""
    parameters: Parameters = field(default_factory=dict)
    """The settings of the run, by names such as `training.lr`."""
    folder: Path | None = None
    """Where the run is recorded, if it is."""
    after: int | None = None
    """A resumed run goes on after this round; None: the run is new."""


def resumed_after(recorder: Recorder | None, state: FederationState | None) -> int | None:
    """The last round that a resumed run has completed; None: the run is new.

    The round that is pending in a saved state is completed, and observed, after the run was resumed.
    """
    if recorder is not None and not recorder.is_resumed:  # a new record, also of a run that has a state
        return None
    if state is None:
        return 0 if recorder is not None and recorder.is_resumed else None
    return state.round - (state.pending is not None)


def place_for(path: str | Path | None, default: str, facts: RunFacts) -> Path:
    """Where a tracker writes: at a path of its own, or else inside the folder of the run."""
    if path is not None:
        return Path(path).expanduser()
    if facts.folder is None:
        raise InputError("the run is not recorded, so its observer needs a `path` to write to.")
    return facts.folder / default


def refuse_existing(files: Iterable[Path], facts: RunFacts) -> None:
    """A new run neither replaces the files of another nor adds to them."""
    found = next((file for file in files if file.exists()), None)
    if found is not None and facts.after is None:
        raise InputError(f"the observer would write to {found}, which exists: choose another path.")


def need(module: str, extra: str) -> None:
    """Refuse a tracker whose library is not installed."""
    if find_spec(module) is None:
        raise InputError(f'{module} is not installed: pip install "steelyard[{extra}]".')
