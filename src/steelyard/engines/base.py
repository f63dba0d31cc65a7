"""Simulated sites: what all engines have in common. How fast sites answer is the engine's business."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from steelyard.client.learner import Trained
from steelyard.client.private_state import PrivateStates
from steelyard.engines.common_test import CommonTest, Members
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Scores, score
from steelyard.sites import LATE, Answer, Profile
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message

Found = Mapping[str, Scores]


class Engine(ABC):
    """Where the sites of a simulation run."""

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
        self._predicted: tuple[Message, Tensor] | None = None
        self._members: tuple[Sequence[ClientId], Members] | None = None

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
    ) -> Iterator[Answer | Failure]:
        deadline = Deadline(seconds)
        scores: dict[ClientId, Found] = {}
        failed: set[ClientId] = set()
        if evaluate:
            for client, found in self._evaluate(broadcast.model_to_score, evaluate, detail, deadline):
                if isinstance(found, Failure):
                    failed.add(client)
                    yield found
                else:
                    scores[client] = found
        invited = set(train)
        for client, found in scores.items():
            if client not in invited:
                yield Answer(client, None, found)
        if failed:
            train = [client for client in train if client not in failed]
        if not train:
            return
        for outcome in self.train(broadcast, train, deadline):
            if isinstance(outcome, Failure):
                yield outcome
                continue
            client = outcome.reply.client
            if outcome.state:
                self.states.put(broadcast.round, {client: outcome.state})
            yield Answer(client, outcome.reply, scores.get(client, EMPTY))

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
    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], deadline: Deadline
    ) -> Iterator[Trained | Failure]:
        """Train these clients, in any order."""

    @abstractmethod
    def evaluate(
        self, model: Message, clients: Sequence[ClientId], own_test: bool, detail: bool, deadline: Deadline
    ) -> Iterator[tuple[ClientId, Found | Failure]]:
        """Score a model at these clients; without `own_test`, only on what they hold out."""

    @abstractmethod
    def predict_common(self, model: Message) -> Tensor:
        """Predictions of a shared model on the common test set, [N, C]."""

    def common_predictions(self, model: Message) -> Tensor:
        """The same, made once for each model: the server and a thousand sites may need them."""
        if self._predicted is None or self._predicted[0] is not model:
            self._predicted = (model, self.predict_common(model))
        return self._predicted[1]

    def _evaluate(
        self, model: Message, clients: Sequence[ClientId], detail: bool, deadline: Deadline
    ) -> Iterator[tuple[ClientId, Found | Failure]]:
        """Score a model at some clients; those whose test data are rows of the common test set share its
        predictions."""
        if self._members is None or self._members[0] != clients:
            self._members = (clients, CommonTest(self.workload).members(clients))
        members = self._members[1]
        inside: dict[ClientId, Found] = {}
        if members.inside:
            inside = dict(members.scores(self.common_predictions(model)))
        if members.held_out:
            for client, found in self.evaluate(model, members.held_out, False, detail, deadline):
                yield client, found if isinstance(found, Failure) else {**inside.pop(client), **found}
        yield from inside.items()
        if members.apart:
            yield from self.evaluate(model, members.apart, True, detail, deadline)


class SharedTest:
    """The common test set of a simulation; its predictions also serve the clients that hold rows of it."""

    def __init__(self, sites: SimulatedSites) -> None:
        self.sites = sites

    def scores(self, model: Message, temperature: float = 1.0) -> Scores:
        test = self.sites.workload.test
        assert test is not None
        return score(self.sites.common_predictions(model), test.labels, True, temperature)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: sums depend in their last bits on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
