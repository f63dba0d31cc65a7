"""Run a federation, and record it."""

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from torch import nn

import steelyard
from steelyard.algorithm import Algorithm
from steelyard.client.models import ClientModels, OwnModels
from steelyard.client.private_state import MemoryStates, PrivateStates, StateFiles, no_check, take_over
from steelyard.client.temporary_folder import temporary_folder
from steelyard.components import Choice, choice_of
from steelyard.data.clients import Client
from steelyard.engines.base import SimulatedSites
from steelyard.engines.workload import Workload
from steelyard.errors import InputError
from steelyard.layout import tensors_of
from steelyard.observers.base import Watching, named_observers
from steelyard.observers.facts import RunFacts
from steelyard.observers.terminal_bar import progress_bars
from steelyard.runs.folder import PRIVATE
from steelyard.runs.naming import in_folder_name
from steelyard.runs.reader import FIRST, Run
from steelyard.runs.recorded_model import KEY, Inputs, RecordedModel
from steelyard.runs.run_settings import SETTINGS, to_json, with_environment
from steelyard.runs.state_checks import check_model, check_no_private_layers, check_state
from steelyard.runs.writer import Recorder, new_recorder
from steelyard.server.callbacks import Callback, check_callbacks
from steelyard.server.concerns import Participation
from steelyard.server.federation import Federation
from steelyard.server.observing import Observer
from steelyard.server.result import Result
from steelyard.server.state import FederationState
from steelyard.threads import on_one_thread
from steelyard.types import ClientId, Message


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
        *observers: Observer | Choice,
        out: str | Path | None = None,
        recorder: Recorder | str | Path | None = None,
        state: FederationState | None = None,
        rounds: int | str | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        progress: bool = True,
    ) -> Result:
        """Run to the end, from the beginning or from a state.

        Each observer, a function or a name such as "csv", is called with every completed round, and after
        them each callback with a `RoundEvent`. A tracker (`steelyard.observers`) is also told how the run
        begins and ends.

        Args:
            out: record the run in a new folder, named by the time, in this one: `out="runs"`.
            recorder: record the run in exactly this folder, or with this `Recorder`.
            state: go on from here (`result.state`). Where only the head is shared, use `resume`, which also
                has the private layers of the clients.
            rounds: until which round, instead of what the federation was made with; "+10": ten more.
            callbacks: more callbacks for this run only.
            progress: a bar in a notebook and, if the run takes more than a second, on a terminal;
                `STEELYARD_PROGRESS=0` turns all bars off.
        """
        planned, called = self._until(rounds, 0 if state is None else state.round), check_callbacks(callbacks)
        watching = named_observers(observers)
        goes_on = isinstance(recorder, Recorder) and recorder.is_resumed
        if state is not None and state.round and not goes_on:
            check_no_private_layers(self.algorithm.sharing)
        kept = planned._recorder(out, recorder)
        result = planned._run(watching, kept, state, called, progress)
        result.warn()
        return result

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
        settings, participation = with_environment(self.settings()), Participation()
        with (
            Watching((*observers, *progress_bars(progress))) as watching,
            recorder or nullcontext(),
            self._states(recorder) as states,
            self.open(states) as sites,
        ):
            if recorder is not None:
                self._note(recorder, state)
                recorder.note(memory_format=sites.workload.memory_format)
            watching.begin(self.facts(recorder, state))
            done = 0 if state is None else state.round
            sites.rewind(done) if private is None else take_over(states, private, self.clients, done)
            server, called = self.server(sites), (*self.callbacks, *callbacks)
            seen: list[Observer] = [*watching.observers, participation]
            try:
                result = server.run(*seen, keeper=recorder, state=state, callbacks=called)
            finally:
                if recorder is not None:
                    recorder.note(engine=sites.about)
        lost = isinstance(states, StateFiles) and recorder is None
        own = _not_recorded if lost else self._models(result.state, states)
        path = None if recorder is None else recorder.path
        return replace(result, model_of=own, path=path, notices=participation.notices(), settings=settings)

    def _until(self, rounds: int | str | None, done: int) -> Self:
        """The same federation with another number of rounds; "+10": ten after those that are `done`."""
        until = done + _more_rounds(rounds) if isinstance(rounds, str) else rounds
        if until is None or until == self.rounds:
            return self
        self.settings()  # read before the copy, which then knows them
        planned = copy.copy(self)
        planned.rounds = until
        planned.check_rounds()
        return planned

    def _recorder(self, out: str | Path | None, recorder: Recorder | str | Path | None) -> Recorder | None:
        if out is not None and recorder is not None:
            raise InputError(
                "out is the folder of many runs, and recorder that of this one; give one of them."
            )
        if out is not None and not isinstance(out, str | Path):
            raise InputError(f"out must be the path of a folder, not {out!r}.")
        meta = {"name": self.name, "version": steelyard.__version__}
        if self.parameters is None:
            meta[SETTINGS] = to_json(self.settings())
        if out is not None:
            return new_recorder(Path(out), f"{in_folder_name(self.name)}-s{self.seed}", None, meta)
        if isinstance(recorder, str | Path):
            return Recorder(recorder, meta=meta)
        if recorder is not None and not isinstance(recorder, Recorder):
            raise InputError(f"recorder must be the path of a folder, or a Recorder, not {recorder!r}.")
        return recorder

    def _note(self, recorder: Recorder, state: FederationState | None) -> None:
        """Record what is needed to load the model, and to go on, before the first round."""
        if state is not None:
            if recorder.is_resumed:
                self.check_state(state, recorder.folder)
            else:
                check_model(state, self.shared, str(recorder.folder))
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

    @property
    @on_one_thread
    def shared(self) -> Message:
        """What is shared, with the values that begin the run."""
        return self.algorithm.sharing.read(tensors_of(self.example), self.workload.learner.layout)

    def check_state(self, state: FederationState, run: Path) -> None:
        """Refuse a saved state that this federation cannot go on from."""
        check_state(state, self.shared, self.algorithm.sharing, self.rounds, run)

    def recorded_states(self, run: Path, check: Callable[[], None] = lambda: None) -> PrivateStates:
        """The private states in the folder of a run; `check` is called before files are changed."""
        return (StateFiles if self.spill else MemoryStates)(run / PRIVATE, check)

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


def _more_rounds(text: str) -> int:
    if not re.fullmatch(r"\+\d{1,9}", text, re.ASCII):
        raise InputError(
            f'rounds must be a whole number or, for more rounds, a text such as "+10", not {text!r}.'
        )
    return int(text)


def _not_recorded(client: ClientId) -> nn.Module:
    raise InputError(
        f"the private state of client {client!r} was in temporary files; record the run to keep it."
    )
