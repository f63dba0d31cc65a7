"""Simulated sites: what all engines have in common. How fast sites answer is the engine's business."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.client.learner import Trained
from steelyard.client.private_state import PrivateStates
from steelyard.engines.common_test import CommonTest, Members
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Scores, Terms, score, terms_of
from steelyard.sites import LATE, Answer, Profile, ScoreTable
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message


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
        self._common: tuple[Message, Tensor, Terms] | None = None
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
    ) -> Iterator[Answer | ScoreTable | Failure]:
        table, requests = self._inside(broadcast.model_to_score, evaluate, detail) if evaluate else (None, ())
        deadline = Deadline(seconds)  # the common test set is the server's own work
        scores: dict[ClientId, Mapping[str, Scores]] = {}
        failures: dict[ClientId, Failure] = {}
        trained: dict[ClientId, Trained] = {}
        for outcome in self.work(broadcast, train, requests, deadline):
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
        requests: Sequence["ScoreRequest"],
        deadline: Deadline,
    ) -> Iterator["Trained | Scored | Failure"]:
        """Score the model at some clients and train some, in any order."""

    @abstractmethod
    def predict_common(self, model: Message) -> Tensor:
        """Predictions of a shared model on the common test set, [N, C]."""

    def common_terms(self, model: Message) -> tuple[Tensor, Terms]:
        """Predictions on the common test set and their terms, made once for each model.

        The server needs them, and every client whose test data are rows of the common test set.
        """
        if self._common is None or self._common[0] is not model:
            assert self.workload.test is not None
            predicted = self.predict_common(model)
            self._common = (model, predicted, terms_of(predicted, self.workload.test.labels))
        return self._common[1:]

    def _inside(
        self, model: Message, clients: Sequence[ClientId], detail: bool
    ) -> tuple[ScoreTable | None, list["ScoreRequest"]]:
        """Scores of clients whose test data are rows of the common test set, and requests for the rest."""
        if self._members is None or self._members[0] != clients:
            self._members = (clients, CommonTest(self.workload).members(clients))
        members = self._members[1]
        table = members.scores(self.common_terms(model)[1]) if members.inside else None
        requests = [
            ScoreRequest(members.held_out, own_test=False, detail=detail),
            ScoreRequest(members.apart, own_test=True, detail=detail),
        ]
        return table, [request for request in requests if request.clients]


class ScoreRequest(NamedTuple):
    """Clients that are to score a model on data of their own."""

    clients: Sequence[ClientId]
    own_test: bool
    """False: only on what they hold out."""
    detail: bool


class Scored(NamedTuple):
    """The scores of one client."""

    client: ClientId
    scores: Mapping[str, Scores]


class SharedTest:
    """The common test set of a simulation; its predictions also serve the clients that hold rows of it."""

    def __init__(self, sites: SimulatedSites) -> None:
        self.sites = sites

    def scores(self, model: Message, temperature: float = 1.0) -> Scores:
        test = self.sites.workload.test
        assert test is not None
        predicted, terms = self.sites.common_terms(model)
        if temperature != 1:
            return score(predicted, test.labels, True, temperature)
        return terms.sum(detail=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: sums depend in their last bits on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
