"""Sites that are run one after the other, in this process."""

from collections.abc import Callable, Iterator, Sequence

from steelyard.client.evaluation import Predicted
from steelyard.client.learner import Trained
from steelyard.client.private_state import PrivateStates
from steelyard.engines.base import Deadline, Scored, SimulatedSites, nothing, readable
from steelyard.engines.buffers import UpdateBuffer
from steelyard.engines.common_test import ScoreRequest
from steelyard.engines.runner import SiteRunner
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Scores
from steelyard.seeds import others_restored
from steelyard.types import Broadcast, ClientId, Failure, Message


class SerialSites(SimulatedSites):
    """Sites that are run in turn. Deadlines do not apply."""

    def __init__(
        self,
        workload: Workload,
        states: PrivateStates,
        runner: SiteRunner | None = None,
        reason: str = "",
    ) -> None:
        """`reason` says why another engine was not taken."""
        super().__init__(workload, states)
        self.runner = runner or SiteRunner(workload)
        place = workload.learner.place
        name = self.runner.name if place.is_cpu else f"{self.runner.name} on {place.name}"
        name += workload.in_words
        self.about = f"{name}, in this process: {reason}" if reason else name
        self.updates: UpdateBuffer | None = None

    def work(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        requests: Sequence[ScoreRequest],
        deadline: Deadline,
        meanwhile: Callable[[], None] = nothing,
    ) -> Iterator[Trained | Scored | Failure]:
        meanwhile()
        yield from self.evaluate(broadcast.model_to_score, requests)
        yield from self.train(broadcast, train)

    def train(self, broadcast: Broadcast, clients: Sequence[ClientId]) -> Iterator[Trained | Failure]:
        """Train clients one after the other, or group by group."""
        if self.updates is None or self.updates.count < len(clients):
            self.updates = UpdateBuffer(broadcast.message, len(clients))
        row = {client: number for number, client in enumerate(clients)}
        for group in self.runner.groups(self.workload, clients, 1):
            states = [self.states.get(client) for client in group]
            rows = [self.updates[row[client]] for client in group]
            yield from self.runner.train_group(broadcast, group, states, rows)

    def evaluate(self, model: Message, requests: Sequence[ScoreRequest]) -> Iterator[Scored | Failure]:
        """Score a model at clients one after the other."""
        for clients, own_test, detail in requests:
            for client in clients:
                state = self.states.get(client)
                found = self.runner.evaluate_group(model, [client], [state], own_test, detail)[0]
                yield found if isinstance(found, Failure) else Scored(client, found)

    def predict_common(self, model: Message) -> Predicted:
        with others_restored():
            return readable(self.runner.predict_common(model))

    def score_common(self, model: Message, temperature: float = 1.0) -> list[Scores]:
        with others_restored():
            return readable(self.runner.score_common(model, temperature))

    def close(self) -> None:
        """There is nothing to stop."""
