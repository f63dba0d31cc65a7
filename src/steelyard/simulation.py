"""A federation on this computer: your clients' data and model, simulated sites, and the server."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from inspect import signature
from typing import Any, Literal

import torch
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.attacks import Attack
from steelyard.attacks.attacked import Attacked, check_adversaries, mark_adversaries, named_attacks
from steelyard.client.arguments import checked_flag, checked_seed, merged_task, with_named_metrics
from steelyard.client.checks import check_fit, creatable
from steelyard.client.learner import Learner
from steelyard.client.models import model_of
from steelyard.client.optimizers import check_training
from steelyard.client.private_state import MemoryStates, PrivateStates
from steelyard.client.unusable_data import warn_of_unusable
from steelyard.components import Choice, component
from steelyard.data.clients import Client, as_clients, in_form_of, input_dtype
from steelyard.data.examples import examples
from steelyard.data.poisoning import poisoned
from steelyard.data.validation import validation_data, with_held_out
from steelyard.engines import Auto, Engine
from steelyard.engines.base import SimulatedSites
from steelyard.engines.description import describe_federation, in_words
from steelyard.engines.own_set import server_set
from steelyard.engines.workload import Workload, workload_of
from steelyard.errors import COUNT, UP_TO_INFINITY, InputError, check_settings
from steelyard.nn.module_checks import check_initialised, check_module
from steelyard.observers.facts import RunFacts, resumed_after
from steelyard.resumable import Resumable
from steelyard.runs.naming import changed_parts, check_name, with_changes
from steelyard.runs.recorded_model import Inputs
from steelyard.runs.summary import flattened
from steelyard.runs.writer import Recorder
from steelyard.server.callbacks import Callback, check_callbacks
from steelyard.server.federation import Federation
from steelyard.server.profiles import check_ids, check_profiles
from steelyard.server.selection import Selection, mode_of
from steelyard.server.selection import check as check_selection
from steelyard.server.state import FederationState
from steelyard.sites import ServerTestSet, Sites
from steelyard.task import Task
from steelyard.texts import called, is_same
from steelyard.threads import on_one_thread
from steelyard.types import EMPTY, ClientId

NAMED = ("rounds", "clients_per_round", "evaluate_every", "validation", "monitor", "patience")
"""Settings that are part of the name of a run, as of a spec's."""
SHOWN = (*NAMED, "round_seconds", "seed", "engine", "spill", "adversaries")


class SimulatedFederation(Resumable):
    """Clients that train one shared model. This is `steelyard.Federation`.

    >>> Federation({"oslo": (x1, y1), "turin": (x2, y2)}, model, rounds=20).run()
    """

    @on_one_thread
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
        adversaries: Mapping[ClientId, Attack | Choice] | Mapping[str, Any] | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        task: Task | None = None,
        metrics: Mapping[str, Any] = EMPTY,
        name: str | None = None,
    ) -> None:
        """The defaults are FedAvg with every client in every round.

        Args:
            clients: `Client` objects, {name: data}, or a `Population`.
            model: the model to train. Where only the head is shared (`Head`), clients may bring their own.
            algorithm: objective, sharing, weighing, combining, and settings of training and server.
            test: a common test set. Where clients hold examples out, it is also scored at their temperature.
            rounds: how many rounds to train.
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
                are any; "loss" is then the nll, or mean squared error. By default it is accuracy, or mean
                squared error in regression, on validation data; without such data, with a warning, on the
                common test set, or else the mean over the clients' own test data; without any, the training
                loss.
            mode: "min" or "max", for metrics of which it is not known whether smaller or larger is better.
                Objects of torchmetrics say it themselves.
            patience: stop after this many evaluations without a better value of that metric.
            round_seconds: a deadline. Clients that have not answered by then have failed in this round.
            seed: of every random draw; with equal seeds, two runs have equal bits.
            spill: keep the private states of clients in files, not in memory.
            task: how the model is called and what the targets are, where that is not found by itself.
            metrics: your own metrics by name: objects of torchmetrics, functions of (outputs, targets), or
                names as in specs, such as "f1" (`steelyard list metrics`).
            engine: where clients train (default: auto): an engine, a name, or {"name": "pool", "workers": 2}.
            adversaries: clients that attack, each with its `steelyard.attacks.Attack`, or its name; or, as in
                a spec, {"count": 2, "attack": "sign-flip"}: so many clients, drawn from the seed.
            callbacks: called with every completed round, its model and state, see `RoundEvent`.
            name: of its runs, in folders, legends and titles (default: after what is not default, such as
                `federation+rounds=20+weighing=majority`).
        """
        self.algorithm = Algorithm() if algorithm is None else algorithm
        if not isinstance(self.algorithm, Algorithm):
            raise InputError(f"algorithm must be an Algorithm, not {algorithm!r}: write Algorithm(...).")
        self.engine: Engine = component("engine", "engines", Engine, "auto" if engine is None else engine)
        self.engine.check(round_seconds)
        self.seed, self.spill = checked_seed(seed), checked_flag("spill", spill)
        self.rounds, self.evaluate_every, self.patience = rounds, evaluate_every, patience
        self.monitor, self.round_seconds = monitor, round_seconds
        self.callbacks = check_callbacks(callbacks)
        self.parameters: Mapping[str, Any] | None = None
        """What trackers are told, where it is more than the settings here: of a spec, all of it."""
        self.inputs: Inputs | None = None
        self.client_inputs: Mapping[ClientId, Inputs] = {}
        """What the models of a spec are built for: the common one, or those of the clients."""
        self.task = merged_task(task, metrics)
        if model is not None:
            check_module("model", model)
            check_initialised(model)
        self.model = copy.deepcopy(model)
        dtype = torch.float32 if model is None else input_dtype(model)
        self.test = None if test is None else examples(test, name="test").to(dtype)
        columns = self.task.columns
        given = as_clients(clients, dtype, columns)
        self.test = in_form_of(given, self.test, columns=columns)
        check_ids(given)
        self.adversaries = named_attacks(adversaries, given, self.seed)
        self.validation = validation_data(validation, dtype, self.algorithm.sharing.has_private_layers)
        self.validation = in_form_of(given, self.validation, "the validation set", columns)
        self.clients_per_round = len(given) if clients_per_round is None else clients_per_round
        self._check(len(given))
        if isinstance(self.validation, float):
            given = with_held_out(given, self.validation, self.seed)
        self.workload = self._fitted_workload(given)
        self.algorithm.check_metrics(self.task.own_metrics)
        self.mode = mode_of(monitor, mode, self.task.own_metrics)
        check_selection(monitor, self.mode, self.validation is not None)
        self.outputs = self.workload.outputs  # models that do not fit their clients are refused here
        if self.algorithm.sharing.has_private_layers:
            check_profiles(self.workload.profiles(self.workload.checked))
        self._check_validation()
        self._warn_of_unusable()
        check_adversaries(self.adversaries, given, self.algorithm.sharing.slots)
        self.clients = poisoned(given, self.adversaries, self.outputs, self.seed)
        if self.clients is not given:
            self.workload = replace(self.workload, clients=self.clients)
        self.name = self._usual_name() if name is None else check_name(name)

    def _fitted_workload(self, clients: Mapping[ClientId, Client]) -> Workload:
        """What simulated sites do; metrics that have names are made when the classes are known."""
        parts = (clients, self.model, self.algorithm)
        found = workload_of(*parts, self.task, self.rounds, self.seed, self.test)
        task, self.task = self.task, with_named_metrics(self.task, found.learner.task)
        if self.task is task:
            return found
        return workload_of(*parts, self.task, self.rounds, self.seed, self.test)

    def __repr__(self) -> str:
        """Clients and model, and what is not default."""
        count, model = f"{len(self.clients)} clients", self.model
        parts = [count, "their own models" if model is None else in_words(model)]
        parts += [] if is_same(self.algorithm, Algorithm()) else [repr(self.algorithm)]
        return called("Federation", self._changed(), *parts)

    def _changed(self) -> dict[str, Any]:
        """The settings that are not default, but the algorithm."""
        usual = {name: each.default for name, each in signature(SimulatedFederation).parameters.items()}
        usual |= {"clients_per_round": len(self.clients), "engine": Auto(), "adversaries": {}}
        own = {name: getattr(self, name) for name in usual if name in SHOWN}
        if self.validation is not None and not isinstance(self.validation, float):
            own["validation"] = "own set"
        return {name: value for name, value in own.items() if not is_same(value, usual[name])}

    def _usual_name(self) -> str:
        changed = {name: value for name, value in self._changed().items() if name in NAMED}
        return with_changes("federation", changed | changed_parts(self.algorithm, self.adversaries))

    def facts(self, recorder: Recorder | None, state: FederationState | None) -> RunFacts:
        """What trackers are told before the first round."""
        settings = ("seed", "clients_per_round", "evaluate_every", "patience", "round_seconds", "spill")
        own = {"clients": len(self.clients), **{name: getattr(self, name) for name in settings}}
        own |= {name: value for name in ("monitor", "mode") if (value := getattr(self, name)) is not None}
        parameters = self.parameters or {**own, **flattened({"engine": self.engine}), **self._algorithm}
        folder = None if recorder is None else recorder.folder
        return RunFacts(self.name, self.rounds, parameters, folder, resumed_after(recorder, state))

    def settings(self) -> dict[str, Any]:
        """What the numbers of a run depend on, as plain values, which `resume` compares."""
        names = ("seed", "clients_per_round", "evaluate_every", "patience", "monitor", "mode")
        own = {name: getattr(self, name) for name in names}
        return {**self._described, **own, **self._algorithm}

    @cached_property
    def _algorithm(self) -> Mapping[str, Any]:
        """The algorithm as plain values. Read once: objects in it may be large, or count what they do."""
        return flattened(self.algorithm)

    @cached_property
    def _described(self) -> Mapping[str, Any]:
        """Clients, models, task and attacks as plain values; read once, too."""
        described = describe_federation(self.workload, self.engine, self.test, self.validation)
        return {**described, **flattened({"adversaries": self.adversaries, "task": self.task})}

    def open(self, states: PrivateStates | None = None) -> AbstractContextManager[SimulatedSites]:
        """A context with the simulated sites."""
        return self.engine.open(self.workload, states or MemoryStates(), self.round_seconds)

    def server(self, sites: SimulatedSites) -> Federation:
        """The server of this federation, for simulated sites that are open."""
        return self.server_for(sites, sites.test, self.workload.on(self.engine.device).learner)

    def server_for(
        self, sites: Sites, test: ServerTestSet | None, learner: Learner | None = None
    ) -> Federation:
        """The server of this federation, for sites anywhere, with its own test set.

        The `learner` scores a validation set of the server's own (default: on the CPU).
        """
        reached: Sites = Attacked(sites, self.adversaries, self.seed) if self.adversaries else sites
        mark = partial(mark_adversaries, adversaries=self.adversaries)
        task, data = self.workload.learner.task, self.validation
        learner = learner or self.workload.learner
        own = data if isinstance(data, float) else server_set(self.model, learner, data)
        return Federation(
            reached,
            self.algorithm,
            self.example,
            test=test,
            rounds=self.rounds,
            clients_per_round=self.clients_per_round,
            evaluate_every=self.evaluate_every,
            selection=Selection(self.monitor, self.mode, self.patience, own),
            round_seconds=self.round_seconds,
            seed=self.seed,
            classes=task.outputs if task.plain and task.targets == "classes" else None,
            metrics=task.metrics,
            annotate=mark if self.adversaries else lambda round: round,
        )

    @property
    def ids(self) -> tuple[ClientId, ...]:
        return self.workload.ids

    @property
    def example(self) -> nn.Module:
        """A model whose shared part begins the run; the shared parts of all clients have the same shapes."""
        if self.model is not None:
            return self.model
        return model_of(next(creatable(self.clients, self.ids)), None)

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

    def _warn_of_unusable(self) -> None:
        clients = [self.workload.clients[id] for id in self.workload.checked]
        own = None if isinstance(self.validation, float) else self.validation
        warn_of_unusable(clients, self.test, own)

    def check_rounds(self) -> None:
        self._check(len(self.clients))
        check_training(self.algorithm.training, self.example, self.rounds)

    def _check(self, clients: int) -> None:
        counts = {"rounds": COUNT, "evaluate_every": COUNT, "patience": COUNT, "clients_per_round": COUNT}
        check_settings("", self, **counts, round_seconds=UP_TO_INFINITY)
        if self.clients_per_round > clients:
            raise InputError(
                f"clients_per_round is {self.clients_per_round}, but there are {clients} clients."
            )
        self.algorithm.weighing.check(self.clients_per_round)
