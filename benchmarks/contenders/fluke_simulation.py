"""fluke: FedAVG, clients one after the other in one process, both cores by threads."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.server import Server
from fluke.utils import FederationObserver
from torchmetrics import Accuracy

from contenders.setting import EVALUATION_BATCH, Setting, Table, argument, read, say_round, say_versions


class Shuffled(FastDataLoader):
    """A client's rows, shuffled before each epoch by the generator that all contenders use."""

    def __init__(self, table: Table, labels: int, batch: int, used: int) -> None:
        super().__init__(*table, num_labels=labels, batch_size=batch, skip_singleton=False)
        self.table, self.size = table, min(used, len(table[1]))
        self.order: torch.Generator | None = None

    def __iter__(self) -> Iterator[Any]:
        rows = torch.randperm(len(self.table[1]), generator=self.order)[: self.size]
        self.tensors = [each[rows] for each in self.table]
        return super().__iter__()


class SameOrder(Client):
    """A client that knows its order of rows in each round."""

    setting: Setting

    @property
    def n_examples(self) -> int:
        return len(self.train_set.table[1])

    def local_update(self, current_round: int) -> None:
        self.train_set.order = self.setting.order(current_round, self.index)
        super().local_update(current_round)


class SameClients(Server):
    """A server that invites the clients that all contenders train."""

    cohorts: Iterator[Sequence[int]]

    def get_eligible_clients(self, eligible_perc: float) -> Sequence[Client]:
        by_index = {client.index: client for client in self.clients}
        return [by_index[index] for index in next(self.cohorts)]


class Clock(FederationObserver):
    """Prints the time of every round."""

    accuracy: float | None = None

    def start_round(self, round: int, global_model: Any) -> None:
        self.start = time.perf_counter()

    def server_evaluation(self, round: int, eval_type: str, evals: dict[str, float]) -> None:
        self.accuracy = evals["accuracy"]

    def end_round(self, round: int) -> None:
        say_round(round, time.perf_counter() - self.start, self.accuracy)


def clients(setting: Setting) -> list[Client]:
    """All clients that are in a cohort; they keep neither model nor optimiser from round to round."""
    training, labels = setting.training, setting.facts["num_classes"]
    steps, batch = training["steps"], training["batch_size"]
    used = 10**9 if steps is None else steps * batch
    SameOrder.setting = setting
    optimizer = {"name": "SGD", "lr": training["lr"], "momentum": training["momentum"]}
    return [
        SameOrder(
            index=index,
            train_set=Shuffled(setting.client(index), labels, batch, used),
            test_set=None,
            optimizer_cfg=OptimizerConfigurator(optimizer),
            loss_fn=torch.nn.CrossEntropyLoss(),
            local_epochs=training["epochs"] if steps is None else min(steps, 1),
            persistency=False,
        )
        for index in setting.invited
    ]


def main() -> None:
    say_versions("fluke-fl")
    setting = read(argument())
    labels = setting.facts["num_classes"]
    environment = FlukeENV()
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=setting.evaluates)
    accuracy = Accuracy(task="multiclass", num_classes=labels, average="micro")
    environment.set_evaluator(ClassificationEval(1, labels, accuracy=accuracy))
    test = FastDataLoader(*setting.test(), num_labels=labels, batch_size=EVALUATION_BATCH)
    everyone = clients(setting)
    server = SameClients(setting.model(), test, everyone, weighted=True)
    server.cohorts = iter(setting.cohorts)
    federation = FedAVG(len(everyone), None, {}, clients=everyone, server=server)
    federation.set_callbacks(Clock())
    federation.run(len(setting.cohorts), len(setting.cohorts[0]) / len(everyone))


if __name__ == "__main__":
    main()
