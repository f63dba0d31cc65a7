"""Joint training of many clients: their models are stacked, and one kernel computes a step for all.

The steps are the learner's, on parameters [J, ...] and batches [J, B, ...]. Sums are taken in another order
than for one client alone, so results agree closely, not to the last bit.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from steelyard.client.containment import World
from steelyard.client.learner import Learner, Trained, descend
from steelyard.client.optimizers import why_not_together
from steelyard.client.working_model import working_model_in
from steelyard.data.examples import AnyExamples, Examples, share_a_table
from steelyard.engines.stacked_model import StackedModel
from steelyard.layout import tensors_of
from steelyard.objectives.base import Local
from steelyard.schedules import Progress
from steelyard.seeds import Draws, digest_of_others, seeded
from steelyard.server.stacking import matrix_view
from steelyard.sharing.whole_model import is_flat
from steelyard.types import Broadcast, ClientId, Message, Reply, State

PADDING = -1  # the class of a padding row; NO_NUMBER is its target in regression
NO_NUMBER = -math.inf
Losses = Callable[[Tensor, Tensor], Tensor]


def trial_batch(data: AnyExamples) -> tuple[Tensor, Tensor]:
    """A small batch to try a step with."""
    with seeded(0, "trial"):
        return data.batch(torch.zeros(4, dtype=torch.int64))


def why_not_stacked(learner: Learner, model: nn.Module, inputs: Tensor, targets: Tensor) -> str | None:
    """The reason why clients with this model cannot be trained together, if there is one."""
    if reason := why_not_together(learner.training):
        return reason
    if learner.training.steps == 0:
        return "there is nothing to train"
    if working_model_in(model).normalises_batches:
        return "batch normalisation would count the rows that fill up short batches"
    try:  # a trial step finds the rest: random layers, data-dependent control flow, changing buffers
        stacked = StackedModel(model, 2)
        broadcast = Broadcast(0, Message(torch.empty(0)))
        local = Local(stacked, stacked.use(2), broadcast, 0, learner.layout, task=learner.task)
        local_loss = learner.objective.bind(local)
        if local_loss.losses is None:
            return f"{type(learner.objective).__name__} has no loss for each example"
        with seeded(0, "trial"):
            before = digest_of_others()
            _mean_losses(local_loss.losses, inputs, targets.view(2, 2))
            if digest_of_others() != before:
                return "the model draws from numpy or `random`, which would be the same for all clients"
        if stacked.changes_itself():
            return "the model changes buffers, or parameters that are not trained"
    except Exception as error:
        return str(error).strip().splitlines()[0].rstrip(".")
    return None


def train_together(
    learner: Learner,
    model: StackedModel,
    clients: Sequence[ClientId],
    data: Sequence[AnyExamples],
    broadcast: Broadcast,
    states: Sequence[State],
    rows: Sequence[Message],
) -> list[Trained]:
    """Train several clients for one round; their updates are written into `rows`."""
    start = learner.sharing.start(tensors_of(model.base), learner.layout)
    _load(learner, model, broadcast.message, states, start)
    parameters = model.use(len(clients))
    before = [state or start for state in states]
    came_down = partial(learner.came_down, model.rows, learner.layout, broadcast.message, before)
    placed = learner.place.broadcast(broadcast)
    local = Local(model, parameters, placed, 0, learner.layout, came_down=came_down, task=learner.task)
    local_loss = learner.place.objective(learner.objective).bind(local)
    assert local_loss.losses is not None
    orders = [
        list(learner.batches(broadcast.round, client, len(mine)))
        for client, mine in zip(clients, data, strict=True)
    ]
    counts, key = torch.tensor([len(mine) for mine in orders]), (learner.seed, broadcast.round)
    steps = descend(
        partial(_mean_losses, local_loss.losses),
        _batches(data, orders, [Draws(*key, client, "train") for client in clients], parameters[0].device),
        parameters,
        learner.training,
        local_loss.add_gradient,
        Progress(broadcast.round, broadcast.rounds),
    )
    history: list[Tensor] = []
    kept: dict[int, State] = {}
    for number, losses in enumerate(steps, 1):
        history.append(losses)
        done = (counts == number).nonzero().flatten().tolist()
        if done:  # read these updates now: the copies keep changing while other clients have steps left
            _write_updates(learner, model, broadcast.message, done, [rows[place] for place in done])
            states_of = {place: learner.sharing.keep(model.rows[place], learner.layout) for place in done}
            kept |= {place: learner.place.state(state) for place, state in states_of.items()}
    totals = torch.stack(history).cpu().cumsum(0)[counts - 1, torch.arange(len(counts))]
    return [
        Trained(
            Reply(client, rows[place], len(data[place]), {"loss": loss, "steps": float(count)}), kept[place]
        )
        for place, (client, loss, count) in enumerate(
            zip(clients, (totals / counts).tolist(), counts.tolist(), strict=True)
        )
    ]


def _write_updates(
    learner: Learner, model: StackedModel, before: Message, places: Sequence[int], rows: Sequence[Message]
) -> None:
    """Write the updates of some copies into rows: all at once, if both are consecutive."""
    first, count, layout = places[0], len(places), learner.layout
    matrix = matrix_view([row.mean for row in rows])
    if matrix is not None and places[-1] - first == count - 1 and is_flat(learner.sharing):
        for entry in layout.entries:
            after = model.stack(entry.name)[first : first + count].flatten(1)
            columns = slice(entry.start, entry.stop)
            if after.device == matrix.device:
                torch.sub(after, before.mean[columns], out=matrix[:, columns])
            else:
                matrix[:, columns] = after.cpu() - before.mean[columns]
        return
    for place, row in zip(places, rows, strict=True):
        learner.sharing.update(model.rows[place], layout, learner.place.message(before), row)


def _load(
    learner: Learner, model: StackedModel, message: Message, states: Sequence[State], start: State
) -> None:
    """Set each copy from the shared values and the private state of its client."""
    if any(states):
        for row, state in zip(model.rows, states, strict=False):
            learner.sharing.write(row, learner.layout, message, state or start)
        return
    learner.sharing.write(model.rows[0], learner.layout, message, start)
    for stack in model.stacks.values():
        stack[1 : len(states)] = stack[0]


def _mean_losses(losses: Losses, inputs: Tensor, targets: Tensor) -> Tensor:
    """Each client's mean loss over the real rows of its batch, [J]."""
    real = targets != _padding(targets)
    each = losses(inputs, targets.where(real, 0).flatten()).view(targets.shape)
    return (each * real).sum(1) / real.sum(1).clamp(min=1)


def _batches(
    data: Sequence[AnyExamples],
    orders: Sequence[Sequence[Tensor]],
    draws: Sequence[Draws],
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs [J·B, ...] and targets [J, B] of each step, padded where a batch is short or missing."""
    together = all(share_a_table(each, data[0]) for each in data)
    for inputs, targets in _gathered(data, orders) if together else _collected(data, orders, draws):
        yield inputs.to(device), targets.to(device)


def _gathered(data: Sequence[Any], orders: Sequence[Sequence[Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of clients that share one table, read at once."""
    sizes = pad_sequence(
        [torch.tensor([batch.shape[0] for batch in mine]) for mine in orders], batch_first=True
    )
    starts = torch.tensor([0, *(len(each) for each in data)]).cumsum(0)[:-1]
    positions = torch.cat([batch for mine in orders for batch in mine])
    rows = torch.cat([each.rows for each in data])
    rows = rows[positions + starts.repeat_interleave(sizes.sum(1))]
    real = torch.arange(int(sizes.max())) < sizes.unsqueeze(2)
    table = torch.full(real.shape, PADDING).masked_scatter_(real, rows)  # of rows, [J, steps, B]
    for step, longest in enumerate(sizes.amax(0).tolist()):
        padded = table[:, step, :longest]
        inputs, targets = data[0].read(padded.clamp(min=0).flatten())
        yield inputs, targets.view(padded.shape).where(padded != PADDING, _padding(targets))


def _collected(
    data: Sequence[AnyExamples], orders: Sequence[Sequence[Tensor]], draws: Sequence[Draws]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches from each client's own data; a data set's code draws what it would draw alone."""
    nothing = torch.zeros(0, dtype=torch.int64)
    for step in range(max(map(len, orders))):
        parts = []
        for each, mine, drawing in zip(data, orders, draws, strict=True):
            chosen = mine[step] if step < len(mine) else nothing
            if isinstance(each, Examples):
                parts.append(each.batch(chosen))
            else:
                with World(), drawing():
                    parts.append(each.batch(chosen))
        inputs, targets = map(list, zip(*parts, strict=True))
        filled = pad_sequence(targets, batch_first=True, padding_value=_padding(targets[0]))
        yield pad_sequence(inputs, batch_first=True).flatten(0, 1), filled


def _padding(targets: Tensor) -> float:
    """A target value that marks padding."""
    return NO_NUMBER if targets.is_floating_point() else PADDING
