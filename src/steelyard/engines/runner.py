"""Runs sites one after the other in one process; each worker process has a runner of its own."""

from collections.abc import Sequence

from torch import Tensor

from steelyard.client.evaluation import predict
from steelyard.client.learner import Trained
from steelyard.client.models import model_of
from steelyard.client.private_state import MemoryStates
from steelyard.client.site import Site, failure
from steelyard.client.working_model import WorkingModel
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Scores
from steelyard.types import Broadcast, ClientId, Failure, Message, State


class SiteRunner:
    """One working model serves every client in turn, unless a client brings its own."""

    name = "serial"

    def __init__(self, workload: Workload) -> None:
        self.workload, self.states = workload, MemoryStates()  # a site's own; here states come with each job
        self.working = None if workload.model is None else workload.learner.working_model(workload.model)

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
            try:
                outcomes.append(self.site(client).train(broadcast, state, row))
            except Exception as error:  # the failure of one client must not end the run
                outcomes.append(failure(client, "training", error))
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
            try:
                found.append(self.site(client).evaluate(model, state, detail, own_test))
            except Exception as error:
                found.append(failure(client, "evaluating", error))
        return found

    def predict_common(self, model: Message, rows: slice = slice(None)) -> Tensor:
        """Predictions on rows of the common test set, [N, C]."""
        learner, working, data = self.workload.learner, self.working, self.workload.common_test
        assert working is not None
        assert data is not None
        layout = working.layout or learner.layout
        learner.sharing.write(working.tensors, layout, model, working.start)
        return predict(working.model, data, learner.seed, rows)

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
