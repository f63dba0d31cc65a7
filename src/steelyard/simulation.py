"""A federation on this computer: your clients' data and model, simulated sites, and the server."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.attacks.attacked import Adversaries, Attacked, check_adversaries, mark_adversaries
from steelyard.client.learner import Learner
from steelyard.client.models import model_of, trained_model
from steelyard.client.private_state import MemoryStates, PrivateStates, StateFiles
from steelyard.data.clients import Client, as_clients
from steelyard.data.examples import examples
from steelyard.data.poisoning import poisoned
from steelyard.engines import Auto, Engine
from steelyard.engines.base import SimulatedSites
from steelyard.engines.workload import Workload
from steelyard.errors import InputError, unknown
from steelyard.runs.writer import Recorder
from steelyard.server.federation import Federation, Observer, shared_part
from steelyard.server.profiles import check_profiles
from steelyard.server.result import Result
from steelyard.server.state import FederationState
from steelyard.sites import Sites
from steelyard.types import ClientId

PRIVATE = "private"
"""The folder of a run that holds the private states of its clients."""


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
        patience: int | None = None,
        round_seconds: float | None = None,
        seed: int = 0,
        engine: Engine | None = None,
        spill: bool = False,
        adversaries: Adversaries | None = None,
    ) -> None:
        """The defaults are FedAvg with every client in every round.

        Args:
            clients: `Client` objects, {name: data}, or a `Population`.
            model: the model to train. Where only the head is shared (`Head`), clients may bring their own.
            test: a common test set. Where clients hold examples out, it is also scored at their temperature.
            clients_per_round: how many clients are drawn for a round (default: all).
            evaluate_every: rounds between evaluations. Of more than 1,000 clients, a sample of 1,000 is
                evaluated on its own data, the same in every round.
            patience: stop after this many evaluations without a better test score (without a common test
                set: mean score of the clients).
            round_seconds: a deadline. Clients that have not answered by then have failed in this round.
            spill: keep the private states of clients in files, not in memory.
            adversaries: clients that attack, each with its `steelyard.attacks.Attack`.
        """
        self.algorithm = algorithm or Algorithm()
        self.adversaries, self.engine, self.spill = dict(adversaries or {}), engine or Auto(), spill
        self.rounds, self.evaluate_every, self.patience, self.seed = rounds, evaluate_every, patience, seed
        self.round_seconds = round_seconds
        self.test = None if test is None else examples(test, name="test")
        self.model = None if model is None else copy.deepcopy(model)
        given = as_clients(clients)
        self.clients_per_round = len(given) if clients_per_round is None else clients_per_round
        self._check(len(given))
        self.workload = self._workload(given)
        outputs = self.workload.outputs  # models that do not fit their clients are refused here
        if self.algorithm.sharing.has_private_layers:
            check_profiles(self.workload.profiles(self.workload.checked))
        check_adversaries(self.adversaries, given, self.algorithm.sharing.slots)
        self.clients = poisoned(given, self.adversaries, outputs, seed)
        if self.clients is not given:
            self.workload = replace(self.workload, clients=self.clients)

    def run(
        self, *observers: Observer, recorder: Recorder | None = None, state: FederationState | None = None
    ) -> Result:
        """Run to the end, from the beginning or from a state.

        Each observer is called with every completed round; a recorder keeps the run on disk.
        """
        with recorder or nullcontext(), self._states(recorder) as states, self.open(states) as sites:
            if state is not None:
                self._check_states(recorder, state)
                sites.rewind(state.round)
            server = self.server(sites)
            try:
                result = server.run(*observers, keeper=recorder, state=state)
            finally:
                if recorder is not None:
                    recorder.note(engine=sites.about)
        lost = isinstance(states, StateFiles) and recorder is None
        own = _not_recorded if lost else partial(self.model_of, result.state, states=states)
        return replace(result, model_of=own, path=recorder.path if recorder else None)

    def open(self, states: PrivateStates | None = None) -> AbstractContextManager[SimulatedSites]:
        """A context with the simulated sites."""
        return self.engine.open(self.workload, states or MemoryStates(), self.round_seconds)

    def server(self, sites: SimulatedSites) -> Federation:
        """The server of this federation, for sites that are open."""
        reached: Sites = Attacked(sites, self.adversaries, self.seed) if self.adversaries else sites
        mark = partial(mark_adversaries, adversaries=self.adversaries)
        return Federation(
            reached,
            self.algorithm,
            self.example,
            test=sites.test,
            rounds=self.rounds,
            clients_per_round=self.clients_per_round,
            evaluate_every=self.evaluate_every,
            patience=self.patience,
            round_seconds=self.round_seconds,
            seed=self.seed,
            **({"annotate": mark} if self.adversaries else {}),
        )

    @property
    def ids(self) -> tuple[ClientId, ...]:
        return self.workload.ids

    @property
    def example(self) -> nn.Module:
        """A model whose shared part begins the run; the shared parts of all clients have the same shapes."""
        return model_of(self.clients[self.ids[0]], None) if self.model is None else self.model

    def model_of(self, state: FederationState, client: ClientId, states: PrivateStates) -> nn.Module:
        """The whole model of one client after a round, as a new module."""
        if client not in self.clients:
            raise unknown("client", client, self.ids)
        message, sharing = state.server.evaluated_model, self.algorithm.sharing
        return trained_model(self.clients[client], self.model, sharing, message, states.get(client))

    def shared_model(self) -> nn.Module:
        """What is shared, with the values that begin the run: the whole model, or the head."""
        return shared_part(self.example, self.algorithm.sharing)

    def recorded_states(self, run: Path) -> PrivateStates:
        """The private states in the folder of a run."""
        return StateFiles(run / PRIVATE) if self.spill else MemoryStates(run / PRIVATE)

    @contextmanager
    def _states(self, recorder: Recorder | None) -> Iterator[PrivateStates]:
        """Where private states are kept: in the folder of the run, if it is recorded."""
        if recorder is not None:
            yield self.recorded_states(recorder.path)
        elif self.spill:
            with TemporaryDirectory(prefix="steelyard-") as folder:
                yield StateFiles(Path(folder))
        else:
            yield MemoryStates()

    def _check_states(self, recorder: Recorder | None, state: FederationState) -> None:
        """Refuse to resume with new private layers in place of the trained ones."""
        if recorder is None or not state.round or not self.algorithm.sharing.has_private_layers:
            return
        if not (recorder.path / PRIVATE).is_dir():
            raise InputError(
                f"{recorder.path} has no folder {PRIVATE!r} with the private layers of its clients; restore "
                "it from a copy, or run the spec again."
            )

    def _workload(self, clients: Mapping[ClientId, Client]) -> Workload:
        algorithm, sharing = self.algorithm, self.algorithm.sharing
        first = next(iter(clients))
        example = model_of(clients[first], None) if self.model is None else self.model
        learner = Learner(
            algorithm.objective, sharing, sharing.layout(example), algorithm.training, self.seed
        )
        return Workload(self.model, learner, clients, self.test)

    def _check(self, clients: int) -> None:
        for name in ("rounds", "evaluate_every", "patience", "clients_per_round"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        if self.round_seconds is not None and not self.round_seconds > 0:
            raise InputError(f"round_seconds must be greater than 0, not {self.round_seconds}.")
        if self.clients_per_round > clients:
            raise InputError(
                f"clients_per_round is {self.clients_per_round}, but there are {clients} clients."
            )


def _not_recorded(client: ClientId) -> nn.Module:
    raise InputError(
        f"the private state of client {client!r} was in temporary files; record the run to keep it."
    )
