"""A federation on this computer: your clients' data and model, simulated sites, and the server."""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

import steelyard
from steelyard.algorithm import Algorithm
from steelyard.attacks import Attack
from steelyard.attacks.attacked import Attacked, check_adversaries, mark_adversaries, named_attacks
from steelyard.client.checks import check_fit, creatable
from steelyard.client.learner import Learner
from steelyard.client.models import ClientModels, OwnModels, model_of
from steelyard.client.optimizers import check_training
from steelyard.client.own_code import has_own_data, has_own_layers, has_own_steps, has_own_terms, is_own_code
from steelyard.client.private_state import MemoryStates, PrivateStates, StateFiles, no_check, take_over
from steelyard.client.temporary_folder import temporary_folder
from steelyard.components import Choice, choice_of, component
from steelyard.data.clients import Client, as_clients, in_form_of, input_dtype
from steelyard.data.examples import examples
from steelyard.data.poisoning import poisoned
from steelyard.data.validation import validation_data, with_held_out
from steelyard.engines import Engine
from steelyard.engines.base import SimulatedSites
from steelyard.engines.description import describe_federation
from steelyard.engines.own_set import server_set
from steelyard.engines.workload import Workload
from steelyard.errors import COUNT, UP_TO_INFINITY, InputError, SteelyardWarning, check_settings
from steelyard.layout import tensors_of
from steelyard.observers.base import Watching
from steelyard.observers.facts import RunFacts, resumed_after
from steelyard.observers.terminal_bar import progress_bars
from steelyard.runs.folder import PRIVATE, SPEC
from steelyard.runs.reader import FIRST, Run
from steelyard.runs.recorded_model import KEY, Inputs, RecordedModel
from steelyard.runs.reopening import goes_on, reopen
from steelyard.runs.resuming import last_state
from steelyard.runs.run_settings import SETTINGS, changes, to_json
from steelyard.runs.summary import flattened
from steelyard.runs.writer import Recorder, new_recorder
from steelyard.server.callbacks import Callback, check_callbacks
from steelyard.server.concerns import Participation
from steelyard.server.federation import Federation, Observer, shared_part
from steelyard.server.profiles import check_ids, check_profiles
from steelyard.server.result import Result
from steelyard.server.selection import Best, Selection
from steelyard.server.selection import check as check_selection
from steelyard.server.state import FederationState
from steelyard.sites import ServerTestSet, Sites
from steelyard.task import Task
from steelyard.types import EMPTY, ClientId


class SimulatedFederation:
    """Clients that train one shared model. This is `steelyard.Federation`.

    >>> Federation({"oslo": (x1, y1), "turin": (x2, y2)}, model, rounds=20).run()
    """

    def __init__(
        self,
        clients: Sequence[Client] | Mapping[str, Any],
        model: nn.Module | None = None,
        algorithm: Algorithm | None = None,
        *,
        test: Any = None,
        rounds: int = 30,
        clients_per_round: int | None = None,
        evaluate_every: int = 1,
        validation: Any = None,
        monitor: str | None = None,
        mode: Literal["min", "max"] | None = None,
        patience: int | None = None,
        round_seconds: float | None = None,
        seed: int = 0,
        engine: Engine | Choice | None = None,
        spill: bool = False,
        adversaries: Mapping[ClientId, Attack | Choice] | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        task: Task | None = None,
        metrics: Mapping[str, Any] = EMPTY,
    ) -> None:
        """The defaults are FedAvg with every client in every round.

        Args:
            clients: `Client` objects, {name: data}, or a `Population`.
            model: the model to train. Where only the head is shared (`Head`), clients may bring their own.
            test: a common test set. Where clients hold examples out, it is also scored at their temperature.
            clients_per_round: how many clients are drawn for a round (default: all).
            evaluate_every: rounds between evaluations. Of more than 1,000 clients, a sample of 1,000 is
                evaluated on its own data, the same in every round.
            validation: data to choose the best model by, `result.best_model`: a set of the server's own, like
                `test`, or the share, such as 0.1, of its training data that each client holds out. A client
                with `held_out` examples of its own is scored on these instead. The metrics on validation data
                are `validation_accuracy`, `validation_nll`, ...: with a share, over the held-out examples of
                all clients together. Where only the head is shared, it must be a share, and the best model is
                the shared head.
            monitor: the metric by which the best model is chosen, such as "nll": on validation data if there
                are any. By default it is accuracy, or mean squared error in regression, on validation data;
                without such data, with a warning, on the common test set, or else the mean over the clients'
                own test data; without any, the training loss.
            mode: "min" or "max", for metrics of which it is not known whether smaller or larger is better.
            patience: stop after this many evaluations without a better value of that metric.
            round_seconds: a deadline. Clients that have not answered by then have failed in this round.
            spill: keep the private states of clients in files, not in memory.
            task: how the model is called and what the targets are, where that is not found by itself.
            metrics: your own metrics by name: objects of torchmetrics, or functions of (outputs, targets).
            engine: where clients train (default: auto): an engine, a name, or {"name": "pool", "workers": 2}.
            adversaries: clients that attack, each with its `steelyard.attacks.Attack`, or its name.
            callbacks: called with every completed round, its model and state, see `RoundEvent`.
        """
        self.algorithm = Algorithm() if algorithm is None else algorithm
        if not isinstance(self.algorithm, Algorithm):
            raise InputError(f"algorithm must be an Algorithm, not {algorithm!r}: write Algorithm(...).")
        self.engine: Engine = component("engine", "engines", Engine, "auto" if engine is None else engine)
        self.adversaries, self.spill = named_attacks({} if adversaries is None else adversaries), spill
        self.rounds, self.evaluate_every, self.patience, self.seed = rounds, evaluate_every, patience, seed
        self.monitor, self.mode, self.round_seconds = monitor, mode, round_seconds
        self.callbacks, self.name = check_callbacks(callbacks), "federation"
        self.parameters: Mapping[str, Any] | None = None
        """What trackers are told, where it is more than the settings here: of a spec, all of it."""
        self.inputs: Inputs | None = None
        self.client_inputs: Mapping[ClientId, Inputs] = {}
        """What the models of a spec are built for: the common one, or those of the clients."""
        given_task = task or Task()
        self.task = replace(given_task, metrics={**given_task.metrics, **metrics})
        self.model = None if model is None else copy.deepcopy(model)
        dtype = torch.float32 if model is None else input_dtype(model)
        self.test = None if test is None else examples(test, name="test").to(dtype)
        given = as_clients(clients, dtype)
        self.test = in_form_of(given, self.test)
        check_ids(given)
        self.validation = validation_data(validation, dtype, self.algorithm.sharing.has_private_layers)
        self.validation = in_form_of(given, self.validation, "the validation set")
        self.clients_per_round = len(given) if clients_per_round is None else clients_per_round
        self._check(len(given))
        if isinstance(self.validation, float):
            given = with_held_out(given, self.validation, seed)
        self.workload = self._workload(given)
        self.outputs = self.workload.outputs  # models that do not fit their clients are refused here
        if self.algorithm.sharing.has_private_layers:
            check_profiles(self.workload.profiles(self.workload.checked))
        self._check_validation()
        check_adversaries(self.adversaries, given, self.algorithm.sharing.slots)
        self.clients = poisoned(given, self.adversaries, self.outputs, seed)
        if self.clients is not given:
            self.workload = replace(self.workload, clients=self.clients)

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
        anyway: bool = False,
        callbacks: Callback | Sequence[Callback] = (),
        progress: bool = True,
    ) -> Result:
        """Go on with a run of this federation: an interrupted one, or a finished one for more rounds.

        `run` is its folder, or its result, recorded or not. An interrupted run ends with the bits of an
        unbroken one; a finished one is read back. With `rounds`, it is trained on until this round, with the
        bits of a run that was planned so, as far as nothing depends on the plan: the last planned round is
        always scored, and a learning rate or objective may follow the share of rounds that are done.

        A changed setting, model or environment is refused, because the numbers would be others; `anyway` goes
        on. The data are compared only by the number of examples and the names of clients.
        """
        planned, called = self._until(rounds), check_callbacks(callbacks)
        if isinstance(run, Result) and run.path is None:
            return planned._run_on(run, observers, called, progress)
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
        return Result(*rows, model, state, own, run.path, reasons=run.reasons, best=best)

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
                take_over(states, private, self.ids, 0 if state is None else state.round)
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
        result = self._run(observers, None, replace(state, stale=0), callbacks, progress, private)
        rows = (*before.history, *result.history), (*before.clients, *result.clients)
        return replace(result, history=rows[0], clients=rows[1])

    def _until(self, rounds: int | None) -> "SimulatedFederation":
        """The same federation with another number of rounds."""
        if rounds is None or rounds == self.rounds:
            return self
        planned = copy.copy(self)
        planned.rounds = rounds
        planned._check(len(self.clients))
        check_training(self.algorithm.training, self.example, rounds)
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
            self.check_state(state, recorder.folder)
        notes = {KEY: self.recorded_model().to_json()}
        if self.parameters is None and not recorder.is_resumed:
            notes[SETTINGS] = to_json(self.settings())
        if state is not None and not recorder.is_resumed:
            notes[FIRST] = str(state.round + 1)
        recorder.note(**notes)

    def _models(self, state: FederationState, states: PrivateStates) -> ClientModels:
        """The whole models of the clients after a round."""
        message, sharing = state.server.evaluated_model, self.algorithm.sharing
        return ClientModels(self.model, OwnModels(self.clients), sharing, message, states)

    def facts(self, recorder: Recorder | None, state: FederationState | None) -> RunFacts:
        """What trackers are told before the first round."""
        settings = ("seed", "clients_per_round", "evaluate_every", "patience", "round_seconds", "spill")
        own = {"clients": len(self.clients), **{name: getattr(self, name) for name in settings}}
        own |= {name: value for name in ("monitor", "mode") if (value := getattr(self, name)) is not None}
        parameters = self.parameters or own | flattened({"engine": self.engine}) | flattened(self.algorithm)
        folder = None if recorder is None else recorder.folder
        return RunFacts(self.name, self.rounds, parameters, folder, resumed_after(recorder, state))

    def settings(self) -> dict[str, Any]:
        """What the numbers of a run depend on, as plain values, which `resume` compares."""
        names = ("seed", "clients_per_round", "evaluate_every", "patience", "monitor", "mode", "spill")
        own = {name: getattr(self, name) for name in names}
        parts = {"adversaries": self.adversaries, "task": self.task}
        described = describe_federation(self.workload, self.engine, self.test, self.validation)
        return {**described, **own, **flattened(parts), **flattened(self.algorithm)}

    def recorded_model(self) -> RecordedModel:
        """What is recorded, so that the model can be loaded without the data."""
        rule = self.algorithm.sharing
        prefix = self.workload.learner.layout.prefix
        return RecordedModel(prefix, choice_of("sharing", rule), self.spill, self.inputs, self.client_inputs)

    def open(self, states: PrivateStates | None = None) -> AbstractContextManager[SimulatedSites]:
        """A context with the simulated sites."""
        return self.engine.open(self.workload, states or MemoryStates(), self.round_seconds)

    def server(self, sites: SimulatedSites) -> Federation:
        """The server of this federation, for simulated sites that are open."""
        return self.server_for(sites, sites.test)

    def server_for(self, sites: Sites, test: ServerTestSet | None) -> Federation:
        """The server of this federation, for sites anywhere, with its own test set."""
        reached: Sites = Attacked(sites, self.adversaries, self.seed) if self.adversaries else sites
        mark = partial(mark_adversaries, adversaries=self.adversaries)
        task = self.workload.learner.task
        return Federation(
            reached,
            self.algorithm,
            self.example,
            test=test,
            rounds=self.rounds,
            clients_per_round=self.clients_per_round,
            evaluate_every=self.evaluate_every,
            selection=self.selection,
            round_seconds=self.round_seconds,
            seed=self.seed,
            classes=task.outputs if task.plain and task.targets == "classes" else None,
            metrics=task.metrics,
            annotate=mark if self.adversaries else lambda round: round,
        )

    @property
    def selection(self) -> Selection:
        """How the best round is found."""
        data = self.validation
        own = data if isinstance(data, float) else server_set(self.model, self.workload.learner, data)
        return Selection(self.monitor, self.mode, self.patience, own)

    @property
    def ids(self) -> tuple[ClientId, ...]:
        return self.workload.ids

    @property
    def example(self) -> nn.Module:
        """A model whose shared part begins the run; the shared parts of all clients have the same shapes."""
        if self.model is not None:
            return self.model
        return model_of(next(creatable(self.clients, self.ids)), None)

    def best_of(self, state: FederationState) -> Best | None:
        """The best round that a saved state knows of."""
        if state.best_model is None:
            return None
        model = shared_part(self.example, self.algorithm.sharing, state.best_model)
        return self.selection.best(state, model)

    def shared_model(self) -> nn.Module:
        """What is shared, with the values that begin the run: the whole model, or the head."""
        return shared_part(self.example, self.algorithm.sharing)

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

    def _workload(self, clients: Mapping[ClientId, Client]) -> Workload:
        algorithm, sharing = self.algorithm, self.algorithm.sharing
        example = model_of(next(creatable(clients, clients)), None) if self.model is None else self.model
        check_training(algorithm.training, example, self.rounds)
        own_code = has_own_layers(example) or has_own_terms(algorithm.objective) or is_own_code(sharing)
        own_code = own_code or self.task.has_own_code
        learner = Learner(
            algorithm.objective,
            sharing,
            sharing.layout(example),
            algorithm.training,
            self.seed,
            own_code or has_own_steps(algorithm.training) or has_own_data(clients, self.test),
        )
        return Workload(self.model, learner, clients, self.test).fitted(self.task)

    def _check_validation(self) -> None:
        """Refuse a set of the server's own that does not fit the model."""
        if self.validation is None or isinstance(self.validation, float):
            return
        clients = [self.workload.clients[id] for id in self.workload.checked[:1]]
        learner = self.workload.learner
        try:
            check_fit(self.model, clients, self.validation, learner.objective, learner.task)
        except InputError as error:
            raise InputError(str(error).replace("the test set", "the validation set")) from None

    def _check(self, clients: int) -> None:
        check_selection(self.monitor, self.mode, self.validation is not None)
        counts = {"rounds": COUNT, "evaluate_every": COUNT, "patience": COUNT, "clients_per_round": COUNT}
        check_settings("", self, **counts, round_seconds=UP_TO_INFINITY)
        if self.clients_per_round > clients:
            raise InputError(
                f"clients_per_round is {self.clients_per_round}, but there are {clients} clients."
            )
        self.algorithm.weighing.check(self.clients_per_round)


def _not_recorded(client: ClientId) -> nn.Module:
    raise InputError(
        f"the private state of client {client!r} was in temporary files; record the run to keep it."
    )
