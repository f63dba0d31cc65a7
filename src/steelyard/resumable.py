"""Go on with a run: after an interruption, or for more rounds."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from steelyard.client.models import ClientModels
from steelyard.client.private_state import PrivateStates
from steelyard.components import Choice
from steelyard.errors import InputError, warn_caller
from steelyard.observers.base import named_observers
from steelyard.runnable import Runnable
from steelyard.runs.folder import SPEC
from steelyard.runs.reader import Run
from steelyard.runs.reopening import goes_on, reopen, would_differ
from steelyard.runs.resuming import last_state
from steelyard.runs.run_settings import SETTINGS, changed_settings, changes, to_json, with_environment
from steelyard.runs.state_checks import check_model, check_no_private_layers
from steelyard.runs.writer import Recorder
from steelyard.server.callbacks import Callback, check_callbacks
from steelyard.server.observing import Observer
from steelyard.server.result import Result
from steelyard.server.selection import Best, best_of
from steelyard.server.state import FederationState
from steelyard.threads import on_one_thread


class Resumable(Runnable):
    """A federation that can go on with its runs."""

    mode: str | None
    """Whether the monitored metric is better when it is larger ("max") or smaller ("min"); None: as usual."""

    def resume(
        self,
        run: str | Path | Run | Result,
        *observers: Observer | Choice,
        rounds: int | str | None = None,
        out: str | Path | None = None,
        recorder: Recorder | str | Path | None = None,
        anyway: bool = False,
        callbacks: Callback | Sequence[Callback] | None = None,
        progress: bool = True,
    ) -> Result:
        """Go on with a run of this federation: an interrupted one, or a finished one for more rounds.

        `run` is its folder, or its result, recorded or not. An interrupted run ends with the bits of an
        unbroken one; a finished one is read back. With `rounds`, it is trained on until this round, with the
        bits of a run that was planned so, as far as nothing depends on the plan: the last planned round is
        always scored, and a learning rate or objective may follow the share of rounds that are done.
        `rounds="+10"` is ten more than are done.

        A recorded run is recorded further in its folder; one that was not can be recorded from now on, with
        `out` or `recorder` as in `run`: its rounds so far are part of the record.

        What was changed is refused, because the numbers would be others; `anyway` goes on. Compared are the
        environment, settings, layers of models, values that are not shared (frozen or private layers), and
        the code and attributes of your own losses, metrics, schedules and other objects. Not compared are the
        contents of data, and what your code uses from elsewhere: global variables, other functions, files.
        """
        watching, called = named_observers(observers), check_callbacks(callbacks)
        if isinstance(run, Result) and run.path is None:
            planned = self._until(rounds, run.state.round)
            changed = planned._changes_since(run, anyway)
            kept = planned._recorder(out, recorder)
            result = planned._resume_result(run, watching, kept, called, progress, changed)
        elif out is None and recorder is None:
            found = Run(run.path if isinstance(run, Run | Result) and run.path else str(run))
            planned = self._until(rounds, found.last_round())
            result = planned._resume_folder(found, watching, called, progress, rounds is not None, anyway)
        else:
            raise InputError("the run goes on in its folder; leave out `out` and `recorder`.")
        result.warn()
        return result

    def _resume_folder(
        self,
        run: Run,
        observers: Sequence[Observer],
        callbacks: Sequence[Callback],
        progress: bool,
        asked: bool,
        anyway: bool,
    ) -> Result:
        """Go on with a recorded run; after its end only if the user `asked` for a number of rounds."""
        if (run.path / SPEC).is_file():
            raise InputError(f"{run.path} was made from a spec; `steelyard.resume` goes on with it.")
        more = goes_on(run, self.rounds, asked)
        reopened = reopen(
            run,
            partial(changes, settings=self.settings()),
            lambda: partial(self.read_states, run=run.path),
            anyway,
            after_the_end=more,
        )
        if reopened is None:
            return self.read_result(run)
        recorder, state, changed, problems = reopened
        for note in (*changed, *problems):
            warn_caller(note)
        if changed:
            recorder.note(anyway="; ".join(changed), **{SETTINGS: to_json(self.settings())})
        state = state and (replace(state, stale=0) if more else state)  # more rounds have new patience
        return self._run(observers, recorder, state, callbacks, progress)

    def _resume_result(
        self,
        before: Result,
        observers: Sequence[Observer],
        recorder: Recorder | None,
        callbacks: Sequence[Callback],
        progress: bool,
        changed: Sequence[str],
    ) -> Result:
        """Go on with a run that is in memory."""
        for note in changed:
            warn_caller(note)
        if recorder is not None:
            for round in before.as_rounds():
                recorder(round)
            recorder.note(**({"anyway": "; ".join(changed)} if changed else {}))
        own, state = before.model_of, replace(before.state, stale=0)
        private = own.states if isinstance(own, ClientModels) else None
        result = self._run(observers, recorder, state, callbacks, progress, private)
        if recorder is not None:
            return result
        rows = (*before.history, *result.history), (*before.clients, *result.clients)
        return replace(result, history=rows[0], clients=rows[1])

    def _changes_since(self, before: Result, anyway: bool) -> list[str]:
        """What differs from a run in memory; refused if the run cannot go on, or not to the same numbers."""
        state = before.state
        if state.round > self.rounds:
            raise InputError(f"the result is after round {state.round}, but rounds is {self.rounds}.")
        check_model(state, self.shared, "the result")
        if not isinstance(before.model_of, ClientModels):
            check_no_private_layers(self.algorithm.sharing)
        settings = None if before.settings is None else to_json(before.settings)
        changed = changed_settings(settings, with_environment(self.settings()))
        if changed and not anyway:
            raise would_differ("the run", changed, "pass `anyway=True`")
        return changed

    @on_one_thread
    def read_result(self, run: Run) -> Result:
        """The result of a finished run of this federation, read back from its folder."""
        state, _ = last_state(run, partial(self.read_states, run=run.path))
        if state is None:
            raise InputError(f"{run.path} is finished, but has no saved state to read its result from.")
        return Result(
            tuple(run.rounds),
            tuple(run.clients),
            self.algorithm.sharing.shared_part(self.example, state.server.evaluated_model),
            state,
            self._models(state, self.read_states(state, run.path)),
            run.path,
            reasons=run.reasons,
            best=self.best_of(state),
            own_metrics=tuple(run.own_metrics),
        )

    def best_of(self, state: FederationState) -> Best | None:
        """The best round that a saved state knows of."""
        if state.best_model is None:
            return None
        model = self.algorithm.sharing.shared_part(self.example, state.best_model)
        return best_of(state, self.mode, model)

    def read_states(self, state: FederationState, run: Path) -> PrivateStates:
        """The private states that belong to a saved state; reads, and changes nothing."""
        self.check_state(state, run)
        states = self.recorded_states(run)
        states.read(state.round)
        return states
