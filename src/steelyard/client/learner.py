"""The one local training loop."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from steelyard.client.optimizers import OPTIMIZERS
from steelyard.client.working_model import WorkingModel, working_copy_of
from steelyard.data.examples import AnyExamples
from steelyard.layout import Layout, tensors_of
from steelyard.objectives.base import Local, Objective, add_no_gradient
from steelyard.seeds import generator, seeded
from steelyard.settings import Training
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

    def scratch(self, model: nn.Module) -> WorkingModel:
        """A copy of a model to work in, which knows what of it travels and what stays."""
        layout = self.sharing.layout(model)
        start = self.sharing.start(tensors_of(model), layout)
        return replace(working_copy_of(model), layout=layout, start=start)

    def train(
        self,
        scratch: WorkingModel,
        client: ClientId,
        data: AnyExamples,
        broadcast: Broadcast,
        state: State,
        row: Message | None = None,
    ) -> Trained:
        """One client's work in one round. What the scratch model held before does not matter.

        The update is written into `row`, if one is given.
        """
        layout = scratch.layout or self.layout
        self.sharing.write(scratch.tensors, layout, broadcast.message, state or scratch.start)
        if not scratch.model.training:
            scratch.model.train()
        with seeded(self.seed, broadcast.round, client, "train"):
            local = Local(
                scratch.model, scratch.parameters, broadcast, len(data), layout, lambda: data.labels
            )
            bound = self.objective.bind(local)
            picks = self.batches(broadcast.round, client, len(data), pair=scratch.normalises_batches)
            losses = [
                float(loss)
                for loss in descend(
                    bound.loss,
                    (data.batch(positions) for positions in picks),
                    scratch.parameters,
                    self.training,
                    bound.add_gradient,
                )
            ]
        update = subtract(self.sharing.read(scratch.tensors, layout), broadcast.message, row)
        metrics = {"loss": sum(losses) / len(losses)} if losses else {}
        metrics["steps"] = float(len(losses))
        kept = self.sharing.keep(scratch.tensors, layout)
        return Trained(Reply(client, update, len(data), metrics), kept)

    def batches(self, round: int, client: ClientId, count: int, pair: bool = False) -> Iterator[Tensor]:
        """Positions of each of a client's batches in a round."""
        return batches(count, self.training, generator(self.seed, round, client, "train", "order"), pair)


def descend(
    loss: Callable[[Tensor, Tensor], Tensor],
    batches: Iterable[tuple[Tensor, Tensor]],
    parameters: Sequence[Tensor],
    training: Training,
    add_gradient: Callable[[], None] = add_no_gradient,
) -> Iterator[Tensor]:
    """Step down a loss, batch by batch; yields the loss of each step after it is made.

    A loss with an entry for each of several clients, on parameters that they do not share, trains them all.
    """
    step = OPTIMIZERS[training.optimizer](parameters, training)
    for inputs, targets in batches:
        for parameter in parameters:
            parameter.grad = None
        value = loss(inputs, targets)
        torch.autograd.backward(value if value.dim() == 0 else value.sum())
        add_gradient()
        step()
        yield value.detach()


def batches(count: int, training: Training, order: torch.Generator, pair: bool) -> Iterator[Tensor]:
    """Positions of each batch: a new shuffle every epoch.

    With `pair`, a single example left over joins the batch before it, because BatchNorm cannot train on one.
    """
    size = training.batch_size
    per_epoch = -(-count // size)
    if pair and per_epoch > 1 and count % size == 1:
        per_epoch -= 1
    for step in range(training.epochs * per_epoch if training.steps is None else training.steps):
        place = step % per_epoch
        if place == 0:
            shuffled = torch.randperm(count, generator=order)
        start = place * size
        yield shuffled[start : start + size] if place < per_epoch - 1 else shuffled[start:]


def count_steps(count: int, training: Training) -> int:
    """The steps of a client with so many examples."""
    return training.epochs * -(-count // training.batch_size) if training.steps is None else training.steps


def subtract(after: Message, before: Message, row: Message | None = None) -> Message:
    """The update: means as a difference, variances as they are."""
    if row is None:
        return Message(after.mean - before.mean, after.variance)
    torch.sub(after.mean, before.mean, out=row.mean)
    if row.variance is not None and after.variance is not None:
        row.variance.copy_(after.variance)
    return row
