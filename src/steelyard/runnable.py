"""Run a federation, record it, and go on with it: after an interruption, or for more rounds."""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

import steelyard
from steelyard.algorithm import Algorithm
from steelyard.client.models import ClientModels, OwnModels
from steelyard.client.private_state import MemoryStates, PrivateStates, StateFiles, no_check, take_over
from steelyard.client.temporary_folder import temporary_folder
from steelyard.components import choice_of
from steelyard.data.clients import Client
from steelyard.engines.base import SimulatedSites
from steelyard.engines.workload import Workload
from steelyard.errors import InputError, SteelyardWarning
from steelyard.layout import tensors_of
from steelyard.observers.base import Watching
from steelyard.observers.facts import RunFacts
from steelyard.observers.terminal_bar import progress_bars
from steelyard.runs.folder import PRIVATE, SPEC
from steelyard.runs.reader import FIRST, Run
from steelyard.runs.recorded_model import KEY, Inputs, RecordedModel
from steelyard.runs.reopening import goes_on, reopen
from steelyard.runs.resuming import last_state
from steelyard.runs.run_settings import SETTINGS, changes, to_json
from steelyard.runs.writer import Recorder, new_recorder
from steelyard.server.callbacks import Callback, check_callbacks
from steelyard.server.concerns import Participation
from steelyard.server.federation import Federation, Observer, shared_part
from steelyard.server.result import Result
from steelyard.server.selection import Best, Selection
from steelyard.server.state import FederationState
from steelyard.types import ClientId


class Runnable(ABC):
    """A federation with everything decided; what it is made of, its subclass says."""

    algorithm: Algorithm
    model: nn.Module | None
    clients: Mapping[ClientId, Client]
    workload: Workload
    callbacks: Sequence[Callback]
    rounds: int
    seed: int
    spill: bool
    name: str
    parameters: Mapping[str, Any] | None
    """What trackers are told, where it is more than the settings here: of a spec, all of it."""
    inputs: Inputs | None
    client_inputs: Mapping[ClientId, Inputs]
    """What the models of a spec are built for: the common one, or those of the clients."""

    @property
    @abstractmethod
    def example(self) -> nn.Module:
        """A model whose shared part begins the run."""

    @property
    @abstractmethod
    def selection(self) -> Selection:
        """How the best round is found."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the numbers of a run depend on, as plain values, which `resume` compares."""

    @abstractmethod
    def facts(self, recorder: Recorder | None, state: FederationState | None) -> RunFacts:
        """What trackers are told before the first round."""

    @abstractmethod
    def check_rounds(self) -> None:
        """Refuse a number of rounds that cannot be meant."""

    @abstractmethod
    def open(self, states: PrivateStates | None = None) -> AbstractContextManager[SimulatedSites]:
        """A context with the simulated sites."""

    @abstractmethod
    def server(self, sites: SimulatedSites) -> Federation:
        """The server of this federation, for simulated sites that are open."""

    def run(
        self,
        *observers: Observer,
        out: str | Path | None = None,
        recorder: Recorder | str | Path | None = None,
        state: FederationState | None = None,
        rounds: int | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        progress: bool = True,
    ) -> Result:
        """Run to the end, from the beginning or from a state.

        Each observer is called with every completed round, and after them each callback with a `RoundEvent`.
        A tracker (`steelyard.observers`) is also told how the run begins and ends.

        Args:
            out: record the run in a new folder, named by the time, in this one: `out="runs"`.
            recorder: record the run in exactly this folder, or with this `Recorder`.
            state: go on from here (`result.state`). Where only the head is shared, use `resume`, which also
                has the private layers of the clients.
            rounds: until which round, instead of what the federation was made with.
            callbacks: more callbacks for this run only.
            progress: a bar in a notebook and, if the run takes more than a second, on a terminal;
                `STEELYARD_PROGRESS=0` turns all bars off.
        """
        planned, called = self._until(rounds), check_callbacks(callbacks)
        if state is not None and state.round:
            planned.check_private(recorder)
        kept = planned._recorder(out, recorder)
        return planned._run(observers, kept, state, called, progress)

    def resume(
        self,
        run: str | Path | Run | Result,
        *observers: Observer,
        rounds: int | None = None,
        out: str | Path | None = None,
        recorder: Recorder | str | Path | None = None,
        anyway: bool = False,
        callbacks: Callback | Sequence[Callback] = (),
        progress: bool = True,
    ) -> Result:
        """Go on with a run of this federation: an interrupted one, or a finished one for more rounds.

        `run` is its folder, or its result, recorded or not. An interrupted run ends with the bits of an
        unbroken one; a finished one is read back. With `rounds`, it is trained on until this round, with the
        bits of a run that was planned so, as far as nothing depends on the plan: the last planned round is
        always scored, and a learning rate or objective may follow the share of rounds that are done.

        A recorded run is recorded further in its folder; one that was not can be recorded from now on, with
        `out` or `recorder` as in `run`: its rounds so far are part of the record.

        A changed setting, model or environment is refused, because the numbers would be others; `anyway` goes
        on. The data are compared only by the number of examples and the names of clients.
        """
        planned, called = self._until(rounds), check_callbacks(callbacks)
        if isinstance(run, Result) and run.path is None:
            kept = planned._recorder(out, recorder)
            return planned._run_on(run, observers, kept, called, progress)
        if out is not None or recorder is not None:
            raise InputError(
                "the run is recorded in its folder and goes on there; leave out `out` and `recorder`."
            )
        found = Run(run.path if isinstance(run, Run | Result) and run.path else str(run))
        if (found.path / SPEC).is_file():
            raise InputError(f"{found.path} was made from a spec; `steelyard.resume` goes on with it.")
        more = goes_on(found, planned.rounds, asked=rounds is not None)
        reopened = reopen(
            found,
            partial(changes, settings=self.settings()),
            lambda: partial(planned.read_states, run=found.path),
            anyway,
            after_the_end=more,
        )
        if reopened is None:
            return self.read_result(found)
        recorder, state, changed, problems = reopened
        for note in (*changed, *problems):
            warnings.warn(note, SteelyardWarning, stacklevel=2)
        if changed:
            recorder.note(anyway="; ".join(changed), **{SETTINGS: to_json(self.settings())})
        state = state and (replace(state, stale=0) if more else state)  # more rounds have new patience
        return planned._run(observers, recorder, state, called, progress)

    def read_result(self, run: Run) -> Result:
        """The result of a finished run of this federation, read back from its folder."""
        state, _ = last_state(run, partial(self.read_states, run=run.path))
        if state is None:
            raise InputError(f"{run.path} is finished, but has no saved state to read its result from.")
        model = shared_part(self.example, self.algorithm.sharing, state.server.evaluated_model)
        own, best = self._models(state, self.read_states(state, run.path)), self.best_of(state)
        rows = tuple(run.rounds), tuple(run.clients)
        return Result(
            *rows,
            model,
            state,
            own,
            run.path,
            reasons=run.reasons,
            best=best,
            own_metrics=tuple(run.own_metrics),
        )

    def _run(
        self,
        observers: Sequence[Observer],
        recorder: Recorder | None,
        state: FederationState | None,
        callbacks: Sequence[Callback],
        progress: bool,
        private: PrivateStates | None = None,
    ) -> Result:
        """Run with everything decided; `private` are states to go on from that are in no folder."""
        participation = Participation()
        with (
            Watching((*observers, *progress_bars(progress))) as watching,
            recorder or nullcontext(),
            self._states(recorder) as states,
            self.open(states) as sites,
        ):
            if recorder is not None:
                self._note(recorder, state)
            watching.begin(self.facts(recorder, state))
            if private is None:
                sites.rewind(0 if state is None else state.round)
            else:
                take_over(states, private, self.clients, 0 if state is None else state.round)
            server, called = self.server(sites), (*self.callbacks, *callbacks)
            try:
                result = server.run(
                    *watching.observers, participation, keeper=recorder, state=state, callbacks=called
                )
            finally:
                if recorder is not None:
                    recorder.note(engine=sites.about)
        lost = isinstance(states, StateFiles) and recorder is None
        own = _not_recorded if lost else self._models(result.state, states)
        result = replace(result, model_of=own, path=recorder.path if recorder else None)
        result = replace(result, notices=participation.notices())
        result.warn(stacklevel=3)
        return result

    def _run_on(
        self,
        before: Result,
        observers: Sequence[Observer],
        recorder: Recorder | None,
        callbacks: Sequence[Callback],
        progress: bool,
    ) -> Result:
        """Go on with a run that is in memory."""
        state, own = before.state, before.model_of
        if state.round > self.rounds:
            raise InputError(f"the result is after round {state.round}, but rounds is {self.rounds}.")
        self.check_model(state, "the result")
        private = own.states if isinstance(own, ClientModels) else None
        if private is None:
            self.check_private(None)
        if recorder is not None:
            for round in before.as_rounds():
                recorder(round)
        result = self._run(observers, recorder, replace(state, stale=0), callbacks, progress, private)
        if recorder is not None:
            return result
        rows = (*before.history, *result.history), (*before.clients, *result.clients)
        return replace(result, history=rows[0], clients=rows[1])

    def _until(self, rounds: int | None) -> "Runnable":
        """The same federation with another number of rounds."""
        if rounds is None or rounds == self.rounds:
            return self
        planned = copy.copy(self)
        planned.rounds = rounds
        planned.check_rounds()
        return planned

    def _recorder(self, out: str | Path | None, recorder: Recorder | str | Path | None) -> Recorder | None:
        if out is not None and recorder is not None:
            raise InputError(
                "out is the folder of many runs, and recorder that of this one; give one of them."
            )
        meta = {"name": self.name, "version": steelyard.__version__}
        if self.parameters is None:
            meta[SETTINGS] = to_json(self.settings())
        if out is not None:
            return new_recorder(Path(out), f"{self.name}-s{self.seed}", None, meta)
        if isinstance(recorder, str | Path):
            return Recorder(recorder, meta=meta)
        if recorder is not None and not isinstance(recorder, Recorder):
            raise InputError(f"recorder must be the path of a folder, or a Recorder, not {recorder!r}.")
        return recorder

    def _note(self, recorder: Recorder, state: FederationState | None) -> None:
        """Record what is needed to load the model, and to go on, before the first round."""
        if state is not None:
            where = recorder.folder
            self.check_state(state, where) if recorder.is_resumed else self.check_model(state, str(where))
        notes = {KEY: self.recorded_model().to_json()}
        if self.parameters is None and not recorder.is_resumed:
            notes[SETTINGS] = to_json(self.settings())
        if state is not None and not recorder.is_resumed and not Run(recorder.folder).last_round():
            notes[FIRST] = str(state.round + 1)
        recorder.note(**notes)

    def _models(self, state: FederationState, states: PrivateStates) -> ClientModels:
        """The whole models of the clients after a round."""
        message, sharing = state.server.evaluated_model, self.algorithm.sharing
        return ClientModels(self.model, OwnModels(self.clients), sharing, message, states)

    def recorded_model(self) -> RecordedModel:
        """What is recorded, so that the model can be loaded without the data."""
        rule = self.algorithm.sharing
        prefix = self.workload.learner.layout.prefix
        return RecordedModel(prefix, choice_of("sharing", rule), self.spill, self.inputs, self.client_inputs)

    def best_of(self, state: FederationState) -> Best | None:
        """The best round that a saved state knows of."""
        if state.best_model is None:
            return None
        model = shared_part(self.example, self.algorithm.sharing, state.best_model)
        return self.selection.best(state, model)

    def recorded_states(self, run: Path, check: Callable[[], None] = lambda: None) -> PrivateStates:
        """The private states in the folder of a run; `check` is called before files are changed."""
        return (StateFiles if self.spill else MemoryStates)(run / PRIVATE, check)

    def check_model(self, state: FederationState, where: str) -> None:
        """Refuse a state of another model."""
        shared = self.algorithm.sharing.read(tensors_of(self.example), self.workload.learner.layout)
        found = state.server.message
        if found.mean.shape != shared.mean.shape or found.slots != shared.slots:
            raise InputError(f"the state after round {state.round} in {where} belongs to another model.")

    def check_private(self, recorder: Recorder | str | Path | None) -> None:
        """Refuse to go on from a state alone, where clients have private layers that are not part of it."""
        resumed = isinstance(recorder, Recorder) and recorder.is_resumed
        if self.algorithm.sharing.has_private_layers and not resumed:
            raise InputError(
                "the state has only what is shared, not the private layers of the clients; go on with "
                "`federation.resume(result, rounds=...)`, or with the folder of the run."
            )

    def check_state(self, state: FederationState, run: Path) -> None:
        """Refuse a saved state that this federation cannot go on from."""
        self.check_model(state, str(run))
        if state.round > self.rounds:
            raise InputError(
                f"the state in {run} is after round {state.round}, but the run has {self.rounds} rounds."
            )
        if state.round and self.algorithm.sharing.has_private_layers and not (run / PRIVATE).is_dir():
            raise InputError(
                f"{run} has no folder {PRIVATE!r} with the private layers of its clients; restore it from a "
                "copy, or run the spec again."
            )

    def read_states(self, state: FederationState, run: Path) -> PrivateStates:
        """The private states that belong to a saved state; reads, and changes nothing."""
        self.check_state(state, run)
        states = self.recorded_states(run)
        states.read(state.round)
        return states

    @contextmanager
    def _states(self, recorder: Recorder | None) -> Iterator[PrivateStates]:
        """Where private states are kept: in the folder of the run, if it is recorded."""
        if recorder is not None:
            states = self.recorded_states(recorder.folder, recorder.check)
            try:
                yield states
            finally:
                states.check = no_check  # the run has ended; its result only reads
        elif self.spill:
            with temporary_folder() as folder:
                yield StateFiles(folder / PRIVATE)
        else:
            yield MemoryStates()


def _not_recorded(client: ClientId) -> nn.Module:
    raise InputError(
        f"the private state of client {client!r} was in temporary files; record the run to keep it."
    )
