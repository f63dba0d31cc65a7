"""One client after the other, in this process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from steelyard.client.predict import predict
from steelyard.client.working_model import WorkingModel
from steelyard.engines.base import Engine, Look, Rows, Session, Workload, one_thread
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message, State, Trained


@dataclass(frozen=True)
class Serial(Engine):
    """One client after the other, in this process."""

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        with one_thread():
            yield SerialSession(workload)


class SerialSession:
    """One scratch model serves every client in turn. Other engines run one of these in each process."""

    about = "serial"

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.shared = None if workload.model is None else workload.learner.scratch(workload.model)
        self.rows: Rows | None = None

    @staticmethod
    def groups(workload: Workload, clients: Sequence[ClientId], chunk: int) -> list[Sequence[ClientId]]:
        """Clients that a process takes at a time: the largest first, so that nobody waits for a late one."""
        order = sorted(clients, key=workload.size, reverse=True)
        return [order[start : start + chunk] for start in range(0, len(order), chunk)]

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        if self.rows is None or self.rows.count < len(clients):
            self.rows = Rows(broadcast.message, len(clients))
        row = {client: number for number, client in enumerate(clients)}
        for group in self.groups(self.workload, clients, 1):
            mine = [states.get(client, EMPTY) for client in group]
            yield from self.train_group(broadcast, group, mine, [self.rows[row[client]] for client in group])

    def train_group(
        self,
        broadcast: Broadcast,
        clients: Sequence[ClientId],
        states: Sequence[State],
        rows: Sequence[Message],
    ) -> list[Trained | Failure]:
        """Train some clients; their updates are written into `rows`."""
        return [self._train_one(broadcast, *each) for each in zip(clients, states, rows, strict=True)]

    def _train_one(
        self, broadcast: Broadcast, client: ClientId, state: State, row: Message
    ) -> Trained | Failure:
        try:
            data, scratch = self.workload.clients[client].train, self.scratch(client)
            return self.workload.learner.train(scratch, client, data, broadcast, state, row)
        except Exception as error:  # a client cannot break a run
            return Failure(client, "training", f"{type(error).__name__}: {error}")

    def predict(self, message: Message, look: Look) -> Tensor:
        learner, scratch = self.workload.learner, self.scratch(look.client)
        layout = scratch.layout or learner.layout
        kept = look.state or scratch.start
        kept = learner.sharing.without_private_head(kept) if look.shared else kept
        learner.sharing.write(scratch.tensors, layout, message, kept)
        data = self.workload.test_data(look.client, look.part)
        return predict(scratch.model, data, learner.seed, look.rows)

    def scratch(self, client: ClientId | None) -> WorkingModel:
        """A model to work in: the one that serves everybody, or a copy of the client's own."""
        own = None if client is None else self.workload.clients[client].model
        if own is not None:
            return self.workload.learner.scratch(own)
        assert self.shared is not None
        return self.shared
