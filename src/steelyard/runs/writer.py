"""Writes a run to a folder: spec.toml, environment.json, record.sqlite, and model and states as safetensors.

The tables `rounds` and `clients` have a row for each round and for each client in each round; two runs with
the same seed have equal tables. Wall times are in `timings`. Every round is one transaction, so the completed
rounds can be read, whatever ends the run. Before a state is saved, the rounds up to it are forced to disk.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType

from safetensors.torch import save_model
from torch import nn

from steelyard.errors import SteelyardError
from steelyard.runs.environment import environment
from steelyard.runs.folder import (
    BEST,
    DATABASE,
    ENVIRONMENT,
    KEPT_STATES,
    MODEL,
    SPEC,
    Lock,
    TakenError,
    create,
    free_paths,
    refuse_links,
    remove_unfinished,
    state_path,
    states_in,
)
from steelyard.runs.reader import Run
from steelyard.runs.record import Record, make_record
from steelyard.runs.resuming import spec_checksum
from steelyard.runs.state_file import save_state
from steelyard.server.result import RecordedRows
from steelyard.server.selection import Best
from steelyard.server.state import FederationState
from steelyard.tensor_files import metadata, replacing
from steelyard.types import Round

log = logging.getLogger("steelyard.runs")

STATE_SECONDS = 2.0  # between saved states: a crash loses at most this, besides the round that it interrupts


class Recorder:
    """Writes a run as it happens, in a folder of its own; `federation.run(recorder=...)` takes one.

    As a context manager it also records how the run ended.
    """

    def __init__(
        self,
        path: str | Path,
        spec: str | None = None,
        meta: Mapping[str, str] | None = None,
        *,
        after: int | None = None,
        lock: Lock | None = None,
    ) -> None:
        """Record a new run in `path`, which must be new or empty; `spec` is the resolved spec as TOML.

        With `after`, continue the run that is recorded there; rounds after that one are deleted. A folder has
        one recorder at a time: any other is refused. `lock` is for callers that already hold it.
        """
        self.path, self.is_resumed = Path(path), after is not None
        if after is None:
            self.lock = create(self.path, lambda folder: _fill(folder, spec, meta or {}))
        else:
            self.lock = lock or Lock(Run(path).path.resolve())
        self.folder = self.lock.folder
        """The same as `path`, but absolute."""
        try:
            if after is not None:
                refuse_links(self.folder)
            self.record = Record(self.folder / DATABASE)
            if after is not None:
                self._go_back_to(after)
        except BaseException:
            self.lock.release()
            raise
        self._due = 0.0
        self._incomplete = after  # the last round that is recorded without the scores of its model

    def _go_back_to(self, round: int) -> None:
        with self.record.transaction(durable=True):
            self.record.delete_after(round)
            self.record.forget("ended", "error")
            self.record.note(status="running")
        remove_unfinished(self.folder, round)

    def check(self) -> None:
        """Raise an error if the folder is no longer this recorder's."""
        self.lock.check()
        with self.record.transaction():
            pass

    def note(self, **values: str) -> None:
        """Record facts about the run as a whole."""
        self.lock.check()
        with self.record.transaction():
            self.record.note(**values)

    def __call__(self, round: Round) -> None:
        """Commit one round; if it was written before it was complete, it is replaced."""
        self.lock.check()
        with self.record.transaction():
            self._add(round)

    def _add(self, round: Round) -> None:
        if self._incomplete == round.number:
            self.record.delete_after(round.number - 1)
        self.record.add(round)

    def rows(self) -> tuple[RecordedRows, RecordedRows]:
        """The rows of rounds and of clients, read from the folder when they are looked at."""
        run = Run(self.path.resolve())
        return RecordedRows(partial(getattr, run, "rounds")), RecordedRows(partial(getattr, run, "clients"))

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def save(self, state: FederationState) -> None:
        """Save the state from which the run can be resumed, and the last round as far as it is known."""
        self.lock.check()
        with self.record.transaction(durable=True):
            if state.pending is not None:
                self._incomplete = state.round
                self._add(state.pending)
            self.record.note(saved=str(state.round))
        save_state(state, state_path(self.folder, state.round))
        log.debug("saved the state after round %d in %s", state.round, self.folder)
        for path in list(states_in(self.folder).values())[:-KEPT_STATES]:
            path.unlink(missing_ok=True)
        self._due = time.monotonic() + STATE_SECONDS

    def finish(self, state: FederationState, model: nn.Module, best: Best | None = None) -> None:
        """Save state, model and best model; a crash never leaves half a file."""
        self.save(state)
        for name, each in {MODEL: model, BEST: best and best.model}.items():
            if each is not None:
                with replacing(self.folder / name) as partial:
                    save_model(each, str(partial), metadata=metadata())
        if best is not None:
            self.note(monitor=best.metric, best_round=str(best.round), best_score=repr(best.score))

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = status_after(kind)
        reason = {"error": str(error)} if status == "failed" else {}
        written = False
        try:
            with suppress(*([] if kind is None else [SteelyardError])):  # the first error says what is wrong
                self.lock.check()
                verdicts = Run(self.folder).verdicts
                with self.record.transaction():
                    self.record.write_verdicts(verdicts.values())
                    self.record.note(status=status, ended=_now(), **reason)
                written = True
        finally:
            self.record.close(merge=written)
            self.lock.release()


def status_after(error: type[BaseException] | None) -> str:
    """How a run ended: "finished", "interrupted" or "failed"."""
    if error is None:
        return "finished"
    return "interrupted" if issubclass(error, KeyboardInterrupt) else "failed"


def new_recorder(
    parent: Path, name: str, spec: Callable[[Path], str] | None, meta: Mapping[str, str]
) -> Recorder:
    """A recorder in a new folder, named by the time; several runs may start at once.

    `spec` gives the text of the spec for the path of its file; None: the run is not made from a spec.
    """
    for path in free_paths(parent, name):
        with suppress(TakenError):
            return Recorder(path, None if spec is None else spec(path / SPEC), meta)
    raise AssertionError("unreachable")


def _fill(folder: Path, spec: str | None, meta: Mapping[str, str]) -> None:
    """Write what a run needs to be resumed, before its first round."""
    facts = {**meta, "started": _now(), "status": "running"}
    if spec is not None:
        (folder / SPEC).write_bytes(spec.encode())
        facts["spec"] = spec_checksum(spec.encode())
    (folder / ENVIRONMENT).write_text(json.dumps(environment(), indent=2) + "\n", "utf-8")
    make_record(folder / DATABASE, facts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
