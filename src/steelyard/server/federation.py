"""The one round loop: who trains, what comes of it, how good the model is."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.attacks.attacked import Adversaries, attacked, check_adversaries, poisoned
from steelyard.client.checks import check_fit, check_models
from steelyard.client.learner import Learner
from steelyard.client.models import Models
from steelyard.client.private_state import StateFiles, remember
from steelyard.client.scoring import Scorer
from steelyard.data.clients import Client, Part, Population, as_clients
from steelyard.data.examples import examples
from steelyard.engines import Auto, Engine
from steelyard.engines.base import Look, Session, Workload
from steelyard.errors import ClientError, InputError, unknown
from steelyard.layout import tensors_of
from steelyard.runs.writer import Recorder
from steelyard.seeds import generator
from steelyard.server.aggregation import Aggregator
from steelyard.server.rows import (
    Row,
    client_rows,
    coupling_metrics,
    detection_metrics,
    marked,
    round_metrics,
    sigma_metrics,
    traffic,
)
from steelyard.server.state import FederationState
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Round, Trained

MOST_TESTED = 1000  # clients whose own test data are looked at; of more, a sample that stays the same
Observer = Callable[[Round], None]
"""Is told of every round as it ends: a progress bar, a logger."""


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run: a row for each round, a row for each client in each round, and the model."""

    history: tuple[Row, ...]
    clients: tuple[Row, ...]
    model: nn.Module
    """What is shared: the whole model, or the head."""
    model_of: Callable[[ClientId], nn.Module]
    """A client's whole model: where only the head is shared, with its own body."""
    path: Path | None = None

    @property
    def accuracy(self) -> float:
        """Test accuracy at the end; not a number if there was no common test set."""
        return float(self.history[-1].get("accuracy", float("nan")) or 0.0)


class Federation:
    """Clients that train one shared model.

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
        seed: int = 0,
        engine: Engine | None = None,
        spill: bool = False,
        adversaries: Adversaries | None = None,
    ) -> None:
        """The defaults are FedAvg with every client in every round.

        Where only the head is shared (`Head`), clients may bring models of their own; `model` is for those
        who do not. `test` is a common test set. Where clients hold examples out, those find a temperature,
        and the common test set is also scored at it. Of more than 1,000 clients, a sample of 1,000, the same
        in every round, is evaluated on its own data. `patience` stops the run after that many evaluations in
        a row without a better test accuracy (without a common test set: mean client accuracy). With `spill`,
        what stays with the clients between rounds is kept in files, in the folder of the run if it is
        recorded. `adversaries` are clients that attack, each with its `steelyard.attacks.Attack`.
        """
        self.algorithm = algorithm or Algorithm()
        self.clients, self.adversaries = as_clients(clients), dict(adversaries or {})
        self.ids = tuple(self.clients)
        self.test = None if test is None else examples(test, name="test")
        self.model = None if model is None else copy.deepcopy(model)
        self.rounds, self.evaluate_every, self.patience, self.seed = rounds, evaluate_every, patience, seed
        self.clients_per_round = len(self.clients) if clients_per_round is None else clients_per_round
        self.engine, self.spill = engine or Auto(), spill
        self._check()
        looked_at = [
            self.clients[id] for id in (self.ids[:1] if isinstance(self.clients, Population) else self.ids)
        ]
        sharing = self.algorithm.sharing
        check_models(looked_at, self.model, sharing)
        outputs = check_fit(self.model, looked_at, self.test, self.algorithm.objective)
        check_adversaries(self.adversaries, self.clients, sharing.slots)
        self.clients = poisoned(self.clients, self.adversaries, outputs, seed)
        self.models = Models(self.clients, self.model, sharing)
        self.layout = sharing.layout(self.models.example)
        self.learner = Learner(self.algorithm.objective, sharing, self.layout, self.algorithm.training, seed)
        self.aggregator = Aggregator(
            self.algorithm.weighing,
            self.algorithm.combining,
            self.algorithm.server,
            self.layout.num_parameters,
        )
        self.workload = Workload(self.model, self.learner, self.clients, self.test)
        self.announced = self._announce(outputs)
        self.tested = self._draw(MOST_TESTED, "tested")
        self.scorer = Scorer(list(self._made(self.tested)), self.test, sharing.has_private_layers)

    def run(
        self, *observers: Observer, recorder: Recorder | None = None, state: FederationState | None = None
    ) -> Result:
        """Run to the end, from the beginning or from a state.

        Each observer is told of every round as it ends; a recorder keeps the run on disk.
        """
        history: list[Row] = []
        rows: list[Row] = []
        state = state or self.init()
        with (
            recorder or nullcontext(),
            self.engine.open(self.workload) as session,
            nullcontext(recorder.path) if recorder else TemporaryDirectory(prefix="steelyard-") as folder,
        ):
            if self.spill and not isinstance(state.clients, StateFiles):
                shelf = StateFiles(Path(folder) / "clients")
                state = replace(state, clients=shelf.put(state.round, state.clients))
            try:
                while not self.is_over(state):
                    round, following = self.round(state, session)
                    if recorder is not None:
                        recorder.write(round, following)
                    elif isinstance(following.clients, StateFiles):
                        following.clients.prune()
                    state = following
                    history.append({"round": round.number, **round.metrics})
                    rows.extend({"round": round.number, **row} for row in round.clients)
                    for observer in observers:
                        observer(round)
            finally:  # also when interrupted: the record has the model of its last round
                model = self.model_of(state)
                if recorder is not None:
                    recorder.note(engine=session.about)
                    recorder.save_state(state)
                    recorder.save_model(model)
        lost = isinstance(state.clients, StateFiles) and recorder is None
        personal = _not_recorded if lost else partial(self.model_of, state)
        return Result(tuple(history), tuple(rows), model, personal, recorder.path if recorder else None)

    def init(self) -> FederationState:
        """The state before the first round."""
        return FederationState(
            0, self.aggregator.init(self.algorithm.sharing.read(tensors_of(self.models.example), self.layout))
        )

    def is_over(self, state: FederationState) -> bool:
        impatient = self.patience is not None and state.stale >= self.patience
        return state.round >= self.rounds or impatient

    def round(self, state: FederationState, session: Session) -> tuple[Round, FederationState]:
        """One round: sample, train, aggregate, evaluate."""
        clock = Clock()
        number = state.round + 1
        invited = self.sample(number)
        offers = {**self.aggregator.weigher.offer(state.server.weighing), **self.announced}
        broadcast = Broadcast(number, state.server.message, offers, self.rounds)
        with clock("train"):
            outcomes = list(session.train(broadcast, invited, state.clients))
        trained = [outcome for outcome in outcomes if isinstance(outcome, Trained)]
        failures = {outcome.client: outcome for outcome in outcomes if isinstance(outcome, Failure)}
        if not trained and (len(failures) > 1 or len(self.clients) == 1):
            first = failures[min(failures)]
            raise ClientError(
                first.client, number, first.stage, f"{first.reason} (and nobody else succeeded)"
            )
        replies = {outcome.reply.client: outcome.reply for outcome in trained}
        replies = attacked(replies, self.adversaries, number, self.seed)
        with clock("aggregate"):
            done = self.aggregator.aggregate(state.server, list(replies.values()), invited, number)
        kept = remember(
            state.clients, number, {each.reply.client: each.state for each in trained if each.state}
        )
        state = replace(state, round=number, server=done.state, clients=kept)
        metrics = round_metrics(done, replies) | detection_metrics(invited, done, self.adversaries)
        metrics |= sigma_metrics(self.layout, done.state.message.variance)
        if self.algorithm.sharing.has_private_layers:
            metrics |= traffic(done.state.message, [self.models.nbytes(each) for each in invited])
        own: Mapping[ClientId, float] = EMPTY
        if number % self.evaluate_every == 0 or number == self.rounds:
            with clock("evaluate"):
                look = Predictor(session, state)
                shared = replace(look, shared=True) if self.algorithm.sharing.has_private_layers else None
                scores, own = self.scorer.score(look, shared)
            metrics |= scores | (coupling_metrics(done, own) if self.scorer.measure == "accuracy" else {})
            state = _judge(state, scores)
        measure = self.scorer.measure
        rows = client_rows(invited, done, replies, failures, own, measure)
        if self.is_over(state):  # the last round shows everyone, also those who sat it out
            idle = sorted(set(self.tested) - set(invited))
            rows += tuple({"client": each, "status": "idle", measure: own.get(each)} for each in idle)
        return Round(number, metrics, marked(rows, self.adversaries), clock.seconds), state

    def sample(self, number: int) -> tuple[ClientId, ...]:
        """The clients invited to a round, in the order of their ids."""
        return self._draw(self.clients_per_round, number, "sample")

    def _announce(self, classes: int) -> Mapping[str, Tensor]:
        """What clients tell of themselves before the first round, added up: nothing, unless it is needed."""
        if "classes" not in self.algorithm.objective.needs:
            return EMPTY
        counts = [torch.bincount(each.train.labels, minlength=classes) for each in self._made(self.ids)]
        return {"classes": torch.stack(counts).sum(dim=0).float()}

    def _made(self, ids: Sequence[ClientId]) -> Iterator[Client]:
        """Those of some clients that can be made; the others will fail, by name, when they are to train."""
        for id in ids:
            with suppress(Exception):
                yield self.clients[id]

    def _draw(self, count: int, *purpose: str | int) -> tuple[ClientId, ...]:
        """Some of the clients, or all if there are no more, in the order of their ids."""
        if count >= len(self.ids):
            return self.ids
        drawn = torch.randperm(len(self.ids), generator=generator(self.seed, *purpose))
        return tuple(self.ids[position] for position in drawn[:count].sort().values)

    def model_of(self, state: FederationState, client: ClientId | None = None) -> nn.Module:
        """What is shared, after a round, as a module of its own; or the whole model of one client."""
        if client is not None and client not in self.clients:
            raise unknown("client", client, self.ids)
        kept = None if client is None else state.clients.get(client)
        return self.models.after(state.server.evaluated_model, client, kept)

    def _check(self) -> None:
        for name in ("rounds", "evaluate_every", "patience", "clients_per_round"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        if self.clients_per_round > len(self.clients):
            raise InputError(
                f"clients_per_round is {self.clients_per_round}, but there are {len(self.clients)} clients."
            )


class Clock:
    """Wall time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start


@dataclass(frozen=True, eq=False)
class Predictor:
    """Looks at a model after a round: the shared one, or each client's with what has stayed there."""

    session: Session
    state: FederationState
    shared: bool = False
    """Look at what is shared, where clients have their own form of it."""

    def __call__(self, client: ClientId | None, part: Part = "test") -> Tensor:
        kept = EMPTY if client is None else self.state.clients.get(client, EMPTY)
        return self.session.predict(self.state.server.evaluated_model, Look(client, part, kept, self.shared))


def _not_recorded(client: ClientId) -> nn.Module:
    raise InputError(
        f"what stayed with client {client!r} was spilled to files that are gone; record the run to keep it."
    )


def _judge(state: FederationState, scores: Mapping[str, float]) -> FederationState:
    """Is the model better than it ever was?"""
    score = scores.get("accuracy", scores.get("client_accuracy"))
    if score is None:
        return state
    if score > state.best:
        return replace(state, best=score, stale=0)
    return replace(state, stale=state.stale + 1)
