"""One client after the other, in this process."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steelyard.engines.base import Engine, Session, Workload, one_thread
from steelyard.evaluation import predict
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message, State, Trained


@dataclass(frozen=True)
class Serial(Engine):
    """One client after the other, in this process."""

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        with one_thread():
            yield SerialSession(workload)


class SerialSession:
    """One scratch model serves every client in turn."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.about = "serial"
        self.model = scratch(workload.model)

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        for client in clients:
            yield self.train_one(broadcast, client, states.get(client, EMPTY))

    def train_one(self, broadcast: Broadcast, client: ClientId, state: State) -> Trained | Failure:
        data = self.workload.clients[client].train
        try:
            return self.workload.learner.train(self.model, client, data, broadcast, state)
        except Exception as error:  # a client cannot break a run
            return Failure(client, "training", f"{type(error).__name__}: {error}")

    def predict(self, message: Message, client: ClientId | None) -> Tensor:
        return self.predict_rows(message, client, slice(None))

    def predict_rows(self, message: Message, client: ClientId | None, rows: slice) -> Tensor:
        """The predictions of some of the rows; `rows` starts where a batch does."""
        learner = self.workload.learner
        learner.sharing.write(self.model, learner.layout, message, EMPTY)
        return predict(self.model, self.workload.test_data(client), learner.seed, rows)


def scratch(model: nn.Module) -> nn.Module:
    """A copy to train in. Convolutions run about twice as fast on CPUs with their channels last."""
    copied = copy.deepcopy(model)
    if any(isinstance(module, nn.Conv2d) for module in copied.modules()):
        copied = copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return copied
