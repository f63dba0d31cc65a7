"""The local training loop: the only one, for every client and every algorithm."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from steelyard.client.gradients import Loss, grouped, make_gradients
from steelyard.client.memory_format import memory_format_of
from steelyard.client.optimizers import make_step
from steelyard.client.placement import Placement
from steelyard.client.working_model import (
    FrozenParameters,
    WorkingModel,
    frozen_parameters,
    working_copy_of,
)
from steelyard.data.batches import Batch
from steelyard.data.examples import AnyExamples, StreamExamples
from steelyard.errors import InputError
from steelyard.layout import Layout, tensors_of
from steelyard.objectives.base import Local, Objective, add_no_gradient
from steelyard.schedules import Progress, factors
from steelyard.seeds import generator, seeded
from steelyard.settings import Training
from steelyard.sharing import Sharing
from steelyard.task import FittedTask
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
    task: FittedTask = field(default_factory=FittedTask)
    """How models are called, and what the targets are."""
    place: Placement = field(default_factory=Placement)
    """The device on which models train and predict."""

    def on(self, place: Placement) -> "Learner":
        """The same training on another device."""
        place.check(self.layout.dtype)
        return replace(self, place=place)

    def memory_format(self, model: nn.Module) -> torch.memory_format:
        """The order of images in memory while a model trains and predicts; "auto" is a rule for CPUs."""
        if self.training.memory_format == "auto" and not self.place.is_cpu:
            return torch.contiguous_format
        return memory_format_of(model, self.task, self.training.memory_format)

    def working_model(self, model: nn.Module) -> WorkingModel:
        """A copy of a model to train and predict in, with the layout of what travels."""
        layout = self.sharing.layout(model)
        start = self.sharing.start(tensors_of(model), layout)
        copied = working_copy_of(model, self.memory_format(model), self.place.device)
        private = self.sharing.has_private_layers  # these are in the private states, frozen ones as well
        frozen = FrozenParameters() if private else frozen_parameters(copied.model, model, layout)
        return replace(copied, layout=self.place.layout(layout), start=start, frozen=frozen)

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
        layout, kept = working.layout or self.layout, state or working.start
        count, steps = len(data), self.steps_of(data, working.normalises_batches)  # a stream may be read
        broadcast, placed = self.place.broadcast(broadcast), self.place.examples(data)
        self.load(working, broadcast.message, kept)
        if not working.model.training:
            working.model.train()
        key, device = (broadcast.round, client, "train"), self.place.device
        with seeded(self.seed, *key, own_code=self.own_code, device=device):
            local = Local(
                working.model,
                working.parameters,
                broadcast,
                count,
                layout,
                lambda: data.labels.to(device),
                partial(self.came_down, [working.tensors], layout, broadcast.message, [kept]),
                self.task,
            )
            try:
                losses = self._losses(working, client, placed, local, steps)
            finally:
                working.settle()
                working.free_gradients()
        row = broadcast.message.map(partial(torch.empty_like, device="cpu")) if row is None else row
        update = self.sharing.update(working.tensors, layout, broadcast.message, row)
        metrics = {"loss": sum(losses) / len(losses)} if losses else {}
        metrics["steps"] = float(len(losses))
        kept = self.place.state(self.sharing.keep(working.tensors, layout))
        return Trained(Reply(client, update, count, metrics), kept)

    def load(self, working: WorkingModel, message: Message, kept: State) -> None:
        """Give a working model the values of a shared model and of a client's private state."""
        working.put_back()
        working.frozen.reset()
        message = self.place.message(message)
        self.sharing.write(working.tensors, working.layout or self.layout, message, kept)

    def _losses(
        self, working: WorkingModel, client: ClientId, data: AnyExamples, local: Local, steps: int
    ) -> list[float]:
        """Train the working model in so many steps; returns the loss of each."""
        broadcast, pair = local.broadcast, working.normalises_batches
        bound = self.place.objective(self.objective).bind(local)
        found = descend(
            bound.loss,
            self.batches_of(data, local.num_examples, broadcast.round, client, pair),
            working.parameters,
            self.training,
            bound.add_gradient,
            Progress(broadcast.round, broadcast.rounds, steps=steps),
            working.model,
        )
        return self.place.numbers(found)

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

    def batches_of(
        self, data: AnyExamples, count: int, round: int, client: ClientId, pair: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """The batches that a client with `count` examples trains on in a round; a stream has its own."""
        if isinstance(data, StreamExamples):
            return stream_batches(data, self.training)
        return (data.batch(positions) for positions in self.batches(round, client, count, pair))

    def steps_of(self, data: AnyExamples, pair: bool = False) -> int:
        """The number of steps that a client with these data makes in a round."""
        size = self.training.batch_size
        if isinstance(data, StreamExamples):
            return count_steps(self.training, lambda: data.batches_per_pass(size))
        return count_steps(self.training, lambda: batches_per_epoch(len(data), size, pair))

    def batches(self, round: int, client: ClientId, count: int, pair: bool = False) -> Iterator[Tensor]:
        """The example positions of each batch that a client trains on in a round."""
        return batches(count, self.training, generator(self.seed, round, client, "train", "order"), pair)


def descend(
    loss: Loss,
    batches: Iterable[Batch],
    parameters: Sequence[Tensor],
    training: Training,
    add_gradient: Callable[[], None] = add_no_gradient,
    start: Progress = Progress(),  # noqa: B008 - a frozen value
    model: nn.Module | None = None,
) -> Iterator[Tensor]:
    """Minimise a loss step by step; yields the loss of each step after the step is made.

    A loss with one entry per client, on parameters that clients do not share, trains several clients at once.
    The schedule goes on from `start`, the progress before the first step. An optimiser may need the `model`.
    """
    step = make_step(parameters, training, model)
    gradients = make_gradients(loss, parameters, training, add_gradient)
    scheduled = zip(grouped(batches, training.accumulate), factors(training.schedule, start), strict=False)
    for batch, factor in scheduled:
        value = step(factor, partial(gradients, batch))  # its graph is freed during the next step
        yield value.detach()


def batches(count: int, training: Training, order: torch.Generator, pair: bool) -> Iterator[Tensor]:
    """The example positions of each batch, shuffled anew every epoch.

    With `pair`, a last batch of one example is merged into the batch before it: BatchNorm needs two.
    """
    size, per_epoch = training.batch_size, batches_per_epoch(count, training.batch_size, pair)
    for step in range(training.epochs * per_epoch if training.steps is None else training.steps):
        place = step % per_epoch
        if place == 0:
            shuffled = torch.randperm(count, generator=order)
        start = place * size
        yield shuffled[start : start + size] if place < per_epoch - 1 else shuffled[start:]


def batches_per_epoch(count: int, size: int, pair: bool = False) -> int:
    """The number of batches in a pass over so many examples."""
    number = -(-count // size)
    return number - 1 if pair and number > 1 and count % size == 1 else number


def stream_batches(data: StreamExamples, training: Training) -> Iterator[tuple[Any, Any]]:
    """The batches of so many passes over a stream, or of so many steps."""
    if training.steps is None:
        for _ in range(training.epochs):
            yield from data.passes(training.batch_size)
        return
    left = training.steps
    while left > 0:
        before = left
        for batch in itertools.islice(data.passes(training.batch_size), left):
            left -= 1
            yield batch
        if left == before:
            raise InputError("the stream of training data has no batches.")


def count_steps(training: Training, batches_per_pass: Callable[[], int]) -> int:
    """The number of steps of a round; how many batches a pass has is only asked if that decides it."""
    batches = training.epochs * batches_per_pass() if training.steps is None else training.steps
    return -(-batches // training.accumulate)
