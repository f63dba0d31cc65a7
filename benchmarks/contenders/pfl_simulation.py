"""Apple's pfl: FederatedAveraging on the SimulatedBackend, one process.

pfl does not shuffle a client's rows, so they are shuffled here before each epoch.
"""

import functools
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from contenders.setting import EVALUATION_BATCH, Setting, Table, argument, read, say_round, say_versions

ACCURACY = "Central val | accuracy"


class Classifier(nn.Module):
    """A model with the two methods that pfl needs."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.net.train()
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        self.net.eval()
        return {"accuracy": Weighted(int((self.net(x).argmax(1) == y).sum()), len(y))}


class Shuffled(PyTorchTensorDataset):
    """A client's rows in a round, shuffled before each epoch; the first `used` of them are trained on."""

    def __init__(self, table: Table, order: torch.Generator, batch: int, used: int | None) -> None:
        super().__init__(tuple(each[:used] for each in table))
        self.table, self.order, self.batch, self.used = table, order, batch, used

    def iter(self, batch_size: int | None) -> Iterator[Any]:
        if batch_size != self.batch:  # an evaluation, which takes all rows at once
            return super().iter(batch_size)
        rows = torch.randperm(len(self.table[1]), generator=self.order)[: self.used]
        return PyTorchTensorDataset(tuple(each[rows] for each in self.table)).iter(batch_size)


class Clock(TrainingProcessCallback[PyTorchModel]):
    """The last callback: prints the time of every round."""

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.start = time.perf_counter()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        metrics = aggregate_metrics.to_simple_dict() if ACCURACY in aggregate_metrics else {}
        say_round(central_iteration + 1, time.perf_counter() - self.start, metrics.get(ACCURACY))
        self.start = time.perf_counter()
        return False, Metrics()


def population(setting: Setting) -> FederatedDataset:
    """The clients in the order of the rounds. A user of pfl is a client in a round."""
    steps, size = setting.training["steps"], setting.training["batch_size"]
    used = None if steps is None else max(1, steps * size)  # otherwise pfl splits all rows into batches
    tables = {client: setting.client(client) for client in setting.invited}
    sampled = ((number, client) for number, cohort in enumerate(setting.cohorts, 1) for client in cohort)

    def dataset(user: tuple[int, int]) -> Shuffled:
        number, client = user
        return Shuffled(tables[client], setting.order(number, client), size, used)

    return FederatedDataset(dataset, lambda: next(sampled))


def main() -> None:
    say_versions("pfl")
    setting = read(argument())
    training: dict[str, Any] = setting.training
    net = Classifier(setting.model())
    model = PyTorchModel(
        net,
        local_optimizer_create=functools.partial(torch.optim.SGD, momentum=training["momentum"]),
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    clients = population(setting)
    callbacks: list[TrainingProcessCallback[PyTorchModel]] = [Clock()]
    if setting.evaluates:
        batches = NNEvalHyperParams(local_batch_size=EVALUATION_BATCH)
        callbacks.insert(0, CentralEvaluationCallback(PyTorchTensorDataset(setting.test()), batches))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=len(setting.cohorts),
            evaluation_frequency=10**6,  # clients evaluate their models in the first round only
            train_cohort_size=len(setting.cohorts[0]),
            val_cohort_size=None,
        ),
        SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_batch_size=training["batch_size"],
            local_num_epochs=training["epochs"] if training["steps"] is None else None,
            local_num_steps=training["steps"],
            local_learning_rate=training["lr"],
        ),
        callbacks=callbacks,
    )


if __name__ == "__main__":
    main()
