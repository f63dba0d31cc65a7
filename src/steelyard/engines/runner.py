"""Runs sites one after the other in one process; each worker process has a runner of its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from steelyard.client.batch_scoring import score_batches, scored_at_once
from steelyard.client.containment import run_contained
from steelyard.client.evaluation import Predicted, predict_all
from steelyard.client.learner import Trained
from steelyard.client.models import model_of
from steelyard.client.private_state import MemoryStates
from steelyard.client.site import Site
from steelyard.client.working_model import WorkingModel
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Scores
from steelyard.threads import with_threads
from steelyard.types import Broadcast, ClientId, Failure, Message, State

T = TypeVar("T")


class SiteRunner:
    """One working model serves every client in turn, unless a client brings its own."""

    name = "serial"
    trains_together = False
    """Whether the last bits of an update depend on the group that a client is trained in."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.states = workload, MemoryStates()  # a site's own; here states come with each job
        self.working = None if workload.model is None else workload.learner.working_model(workload.model)
        self.own_code = workload.learner.own_code

    @staticmethod
    def groups(workload: Workload, clients: Sequence[ClientId], chunk: int) -> list[Sequence[ClientId]]:
        """Groups of clients to train at a time, the largest clients first so that none is left for last."""
        order = sorted(clients, key=workload.size, reverse=True)
        return [order[start : start + chunk] for start in range(0, len(order), chunk)]

    def train_group(
        self,
        broadcast: Broadcast,
        clients: Sequence[ClientId],
        states: Sequence[State],
        rows: Sequence[Message],
    ) -> list[Trained | Failure]:
        """Train some clients; their updates are written into `rows`."""
        outcomes: list[Trained | Failure] = []
        for client, state, row in zip(clients, states, rows, strict=True):
            work = partial(self._train, client, broadcast, state, row)
            outcomes.append(self._contained(client, "training", work))
        return outcomes

    def evaluate_group(
        self,
        model: Message,
        clients: Sequence[ClientId],
        states: Sequence[State],
        own_test: bool,
        detail: bool,
    ) -> list[dict[str, Scores] | Failure]:
        """Score a model at some clients."""
        found: list[dict[str, Scores] | Failure] = []
        for client, state in zip(clients, states, strict=True):
            work = partial(self._evaluate, client, model, state, detail, own_test)
            found.append(self._contained(client, "evaluating", work))
        return found

    def _contained(self, client: ClientId, stage: str, work: Callable[[], T]) -> T | Failure:
        """The result of a client's work, or its failure, on as many threads as clients have."""
        contained = partial(run_contained, client, stage, work, self.own_code)
        return with_threads(self.workload.threads, contained)

    def _train(self, client: ClientId, broadcast: Broadcast, state: State, row: Message) -> Trained:
        return self.site(client).train(broadcast, state, row)

    def _evaluate(
        self, client: ClientId, model: Message, state: State, detail: bool, own_test: bool
    ) -> dict[str, Scores]:
        return self.site(client).evaluate(model, state, detail, own_test)

    def predict_common(self, model: Message, rows: slice = slice(None)) -> Predicted | Failure:
        """Predictions on rows of the common test set."""
        work = partial(self._predict_common, model, rows)
        return self._contained("the common test set", "evaluating", work)

    def _predict_common(self, model: Message, rows: slice) -> Predicted:
        learner, data = self.workload.learner, self.workload.common_test
        assert data is not None
        return predict_all(self._common_model(model).model, learner, data, rows)

    def _common_model(self, model: Message) -> WorkingModel:
        """The working model with the values of a shared model."""
        working = self.working
        assert working is not None
        self.workload.learner.load(working, model, working.start)
        return working

    def score_common(
        self, model: Message, temperature: float, rows: slice = slice(None)
    ) -> list[Scores] | Failure:
        """Scores on each batch in some rows of the common test set."""
        work = partial(self._score_common, model, temperature, rows)
        return self._contained("the common test set", "evaluating", work)

    def _score_common(self, model: Message, temperature: float, rows: slice) -> list[Scores]:
        learner, working, data = self.workload.learner, self._common_model(model), self.workload.common_test
        assert data is not None
        place, size = learner.place, scored_at_once(learner.task, learner.training.batch_size)
        settings = (learner.seed, True, temperature, rows, size, place.device)
        return score_batches(working.model, place.task(learner.task), place.examples(data), *settings)

    def site(self, client: ClientId) -> Site:
        workload = self.workload
        found = workload.clients[client]
        common = workload.test if workload.has_private_layers else None
        working = self._working_model(found.model is None, client)
        return Site(found, workload.learner, working, common, self.states)

    def _working_model(self, shared: bool, client: ClientId) -> WorkingModel:
        if shared and self.working is not None:
            return self.working
        return self.workload.learner.working_model(
            model_of(self.workload.clients[client], self.workload.model)
        )
