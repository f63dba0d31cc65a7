"""The local training loop: the only one, for every client and every algorithm."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

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
from steelyard.types import EMPTY, Broadcast, ClientId, Message, Reply, State


class Trained(NamedTuple):
    """The result of local training: the reply, and the private state that stays with the client."""

    reply: Reply
    state: State = EMPTY


@dataclass(frozen=True, eq=False)
class Learner:
    """The part of local training that is the same for all clients and rounds."""

    objective: Objective
    sharing: Sharing
    layout: Layout
    training: Training
    seed: int
    own_code: bool = True
    """Whether code of the user's own may run while clients train and predict (`client.own_code`)."""

    def working_model(self, model: nn.Module) -> WorkingModel:
        """A copy of a model to train and predict in, with the layout of what travels."""
        layout = self.sharing.layout(model)
        start = self.sharing.start(tensors_of(model), layout)
        return replace(working_copy_of(model), layout=layout, start=start)

    def train(
        self,
        working: WorkingModel,
        client: ClientId,
        data: AnyExamples,
        broadcast: Broadcast,
        state: State,
        row: Message | None = None,
    ) -> Trained:
        """Train one client for one round, in a working model whose previous values do not matter.

        The update is written into `row`, if one is given.
        """
        layout = working.layout or self.layout
        kept = state or working.start
        self.sharing.write(working.tensors, layout, broadcast.message, kept)
        if not working.model.training:
            working.model.train()
        with seeded(self.seed, broadcast.round, client, "train", own_code=self.own_code):
            local = Local(
                working.model,
                working.parameters,
                broadcast,
                len(data),
                layout,
                lambda: data.labels,
                partial(self.came_down, [working.tensors], layout, broadcast.message, [kept]),
            )
            local_loss = self.objective.bind(local)
            picks = self.batches(broadcast.round, client, len(data), pair=working.normalises_batches)
            losses = [
                float(loss)
                for loss in descend(
                    local_loss.loss,
                    (data.batch(positions) for positions in picks),
                    working.parameters,
                    self.training,
                    local_loss.add_gradient,
                )
            ]
        update = subtract(self.sharing.read(working.tensors, layout), broadcast.message, row)
        metrics = {"loss": sum(losses) / len(losses)} if losses else {}
        metrics["steps"] = float(len(losses))
        kept = self.sharing.keep(working.tensors, layout)
        return Trained(Reply(client, update, len(data), metrics), kept)

    @contextmanager
    def came_down(
        self,
        models: Sequence[Mapping[str, Tensor]],
        layout: Layout,
        message: Message,
        states: Sequence[State],
    ) -> Iterator[None]:
        """Load what came down from the server into models whose clients kept heads of their own."""
        kept = [self.sharing.without_private_head(state) for state in states]
        own = [place for place, state in enumerate(states) if len(kept[place]) != len(state)]
        for place in own:
            self.sharing.write(models[place], layout, message, kept[place])
        try:
            yield
        finally:
            for place in own:
                self.sharing.write(models[place], layout, message, states[place])

    def batches(self, round: int, client: ClientId, count: int, pair: bool = False) -> Iterator[Tensor]:
        """The example positions of each batch that a client trains on in a round."""
        return batches(count, self.training, generator(self.seed, round, client, "train", "order"), pair)


def descend(
    loss: Callable[[Tensor, Tensor], Tensor],
    batches: Iterable[tuple[Tensor, Tensor]],
    parameters: Sequence[Tensor],
    training: Training,
    add_gradient: Callable[[], None] = add_no_gradient,
) -> Iterator[Tensor]:
    """Minimise a loss batch by batch; yields the loss of each step after the step is made.

    A loss with one entry per client, on parameters that clients do not share, trains several clients at once.
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
    """The example positions of each batch, shuffled anew every epoch.

    With `pair`, a last batch of one example is merged into the batch before it: BatchNorm needs two.
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
    """The number of steps of a client with `count` examples."""
    return training.epochs * -(-count // training.batch_size) if training.steps is None else training.steps


def subtract(after: Message, before: Message, row: Message | None = None) -> Message:
    """The update: the difference of the means, and the variances as they are."""
    if row is None:
        return Message(after.mean - before.mean, after.variance)
    torch.sub(after.mean, before.mean, out=row.mean)
    if row.variance is not None and after.variance is not None:
        row.variance.copy_(after.variance)
    return row
