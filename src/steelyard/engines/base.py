"""Simulated sites: what all engines have in common. How fast sites answer is the engine's business."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple, ParamSpec, TypeVar

from steelyard.client.batch_scoring import total_scores
from steelyard.client.evaluation import Predicted
from steelyard.client.interruptions import signals_noted
from steelyard.client.learner import Trained
from steelyard.client.private_state import PrivateStates
from steelyard.data.examples import StreamExamples
from steelyard.devices import checked_device
from steelyard.engines.common_test import CommonTest, Members, ScoreRequest
from steelyard.engines.workload import Workload
from steelyard.errors import InputError, SteelyardError
from steelyard.metrics.scores import Scores, Terms, score, terms_of
from steelyard.seeds import others_restored
from steelyard.sites import LATE, Answer, Profile, ScoreTable
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message

P = ParamSpec("P")
T = TypeVar("T")


class Engine(ABC):
    """Where the sites of a simulation run."""

    device: str = "cpu"
    """The device of torch on which models train and predict; most engines know the CPU only."""
    threads: int = 1
    """How many threads of torch train a client, or predict; some engines know one only."""

    def check(self, round_seconds: float | None) -> None:
        """Refuse a device that cannot be used, before the first round."""
        if self.device == "cpu":
            return
        checked_device(self.device)
        if round_seconds is not None:
            raise InputError(
                "round_seconds is a deadline for worker processes, but with engine.device "
                f"{self.device!r} clients run in this one; leave one of the two out."
            )

    @abstractmethod
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> AbstractContextManager["SimulatedSites"]:
        """Start what is needed to answer; everything is stopped when the context ends.

        `round_seconds` is the deadline that later exchanges will have.
        """


class Deadline:
    """A point in time, `seconds` from now; None is never."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds until then, at least 0."""
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def missed_by(self, client: ClientId) -> Failure:
        return Failure(client, LATE, f"no answer within {self.seconds:g} s")


class SimulatedSites(ABC):
    """Sites in this program, or in processes that it started."""

    about: str

    def __init__(self, workload: Workload, states: PrivateStates) -> None:
        self.workload, self.states = workload, states
        self._predicted: tuple[Message, Predicted] | None = None
        self._terms: Terms | None = None
        self._sorted: tuple[Sequence[ClientId], Members] | None = None

    @property
    def clients(self) -> tuple[ClientId, ...]:
        return self.workload.ids

    def profiles(self, clients: Sequence[ClientId]) -> Mapping[ClientId, Profile]:
        return self.workload.profiles(clients)

    def ask(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        evaluate: Sequence[ClientId] = (),
        *,
        detail: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Answer | ScoreTable | Failure]:
        model = broadcast.model_to_score
        members = self._members(evaluate)
        if members.inside:
            self.common_predictions(model)  # before the deadline begins: this is the server's own work
        deadline, requests = Deadline(seconds), members.requests(detail)
        table: ScoreTable | None = None

        def score_inside() -> None:
            nonlocal table
            table = members.scores(self.common_terms(model)) if members.inside else None

        scores: dict[ClientId, Mapping[str, Scores]] = {}
        failures: dict[ClientId, Failure] = {}
        trained: dict[ClientId, Trained] = {}
        own_code = self.workload.learner.own_code
        with signals_noted() if own_code else nullcontext(), others_restored():
            for outcome in self.work(broadcast, train, requests, deadline, meanwhile=score_inside):
                if isinstance(outcome, Scored):
                    scores[outcome.client] = outcome.scores
                elif isinstance(outcome, Trained):
                    trained[outcome.reply.client] = outcome
                else:
                    failures.setdefault(outcome.client, outcome)
        unscored = {client for client, failed in failures.items() if failed.stage != "training"}
        if table is not None:
            yield table.without(unscored) if unscored else table
        for client, failed in failures.items():
            yield replace(failed, scores=EMPTY if client in unscored else scores.pop(client, EMPTY))
        for client, done in trained.items():
            if client not in failures:
                if done.state:
                    self.states.put(broadcast.round, {client: done.state})
                yield Answer(client, done.reply, scores.pop(client, EMPTY))
        for client, found in scores.items():
            if client not in failures:
                yield Answer(client, None, found)

    def commit(self, round: int) -> None:
        self.states.commit(round)

    def rewind(self, round: int) -> None:
        self.states.rewind(round)

    @property
    def test(self) -> "SharedTest | None":
        """The common test set, as the server's own."""
        common = self.workload.test is not None and not self.workload.has_private_layers
        return SharedTest(self) if common else None

    @abstractmethod
    def work(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        requests: Sequence[ScoreRequest],
        deadline: Deadline,
        meanwhile: Callable[[], None],
    ) -> Iterator["Trained | Scored | Failure"]:
        """Score the model at some clients and train some, in any order.

        `meanwhile` is called once; an engine with workers calls it while they are busy.
        """

    @abstractmethod
    def predict_common(self, model: Message) -> Predicted:
        """Predictions of a shared model on the common test set."""

    @abstractmethod
    def score_common(self, model: Message, temperature: float = 1.0) -> list[Scores]:
        """Scores of a shared model on each batch of the common test set."""

    def common_predictions(self, model: Message) -> Predicted:
        """Predictions on the common test set, made once for each model: the server and clients need them."""
        if self._predicted is None or self._predicted[0] is not model:
            self._predicted, self._terms = (model, self.predict_common(model)), None
        return self._predicted[1]

    def common_terms(self, model: Message) -> Terms:
        """What each example of the common test set adds to scores."""
        predicted = self.common_predictions(model).outputs
        if self._terms is None:
            assert self.workload.test is not None
            self._terms = terms_of(predicted, self.workload.test.labels)
        return self._terms

    def _members(self, clients: Sequence[ClientId]) -> Members:
        if self._sorted is None or self._sorted[0] != clients:
            self._sorted = (clients, CommonTest(self.workload).members(clients))
        return self._sorted[1]


class Scored(NamedTuple):
    """The scores of one client."""

    client: ClientId
    scores: Mapping[str, Scores]


class SharedTest:
    """The common test set of a simulation; its predictions also serve the clients that hold rows of it."""

    def __init__(self, sites: SimulatedSites) -> None:
        self.sites = sites

    def scores(self, model: Message, temperature: float = 1.0) -> Scores:
        test, task = self.sites.workload.test, self.sites.workload.learner.task
        assert test is not None
        if not task.plain or isinstance(test, StreamExamples):
            return total_scores(self.sites.score_common(model, temperature))
        found = self.sites.common_predictions(model)
        if temperature != 1:
            return score(found.outputs, test.labels, True, temperature)
        return self.sites.common_terms(model).sum(detail=True)._replace(own=found.own)


def readable(predicted: T | Failure) -> T:
    """Predictions or scores on the common test set; the run cannot go on without them."""
    if isinstance(predicted, Failure):
        raise SteelyardError(f"evaluation on {predicted.client} failed: {predicted.reason}")
    return predicted


def nothing() -> None:
    """The default for work that is done meanwhile."""
