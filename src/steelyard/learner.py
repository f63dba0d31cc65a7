"""The one local training loop."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steelyard.data.examples import AnyExamples
from steelyard.layout import Layout
from steelyard.objectives.base import Local, Objective
from steelyard.optimizers import OPTIMIZERS, Training
from steelyard.seeds import generator, seeded
from steelyard.sharing import Sharing
from steelyard.types import Broadcast, ClientId, Message, Reply, State, Trained


@dataclass(frozen=True, eq=False)
class Learner:
    """Everything about local training that is the same for all clients and rounds."""

    objective: Objective
    sharing: Sharing
    layout: Layout
    training: Training
    seed: int

    def train(
        self, model: nn.Module, client: ClientId, data: AnyExamples, broadcast: Broadcast, state: State
    ) -> Trained:
        """One client's work in one round. `model` is scratch: its content before does not matter."""
        key = (broadcast.round, client, "train")
        self.sharing.write(model, self.layout, broadcast.message, state)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        step = OPTIMIZERS[self.training.optimizer](parameters, self.training)
        order = generator(self.seed, *key, "order")
        model.train()
        losses = []
        with seeded(self.seed, *key):
            bound = self.objective.bind(Local(model, parameters, broadcast, len(data)))
            for positions in batches(len(data), self.training, order, pair=_normalises_batches(model)):
                for parameter in parameters:
                    parameter.grad = None
                loss = bound.loss(*data.batch(positions))
                loss.backward()  # type: ignore[no-untyped-call]
                bound.add_gradient()
                step()
                losses.append(loss.detach())
        message = subtract(self.sharing.read(model, self.layout), broadcast.message)
        metrics = {"loss": float(torch.stack(losses).mean()), "steps": float(len(losses))}
        return Trained(Reply(client, message, len(data), metrics), self.sharing.keep(model, self.layout))


def batches(count: int, training: Training, order: torch.Generator, pair: bool) -> Iterator[Tensor]:
    """Positions of each batch: a new shuffle every epoch.

    With `pair`, a single example left over joins the batch before it, because BatchNorm cannot train on one.
    """
    starts = list(range(0, count, training.batch_size))
    if pair and len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    per_epoch = len(starts)
    steps = training.epochs * per_epoch if training.steps is None else training.steps
    for step in range(steps):
        if step % per_epoch == 0:
            shuffled = torch.randperm(count, generator=order)
        start = starts[step % per_epoch]
        last = start == starts[-1]
        yield shuffled[start:] if last else shuffled[start : start + training.batch_size]


def subtract(after: Message, before: Message) -> Message:
    """The update: means as a difference, variances as they are."""
    return Message(after.mean - before.mean, after.variance)


def _normalises_batches(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
