"""Joint training of many clients: their models are stacked, and one kernel computes a step for all.

The steps are the learner's, on parameters [J, ...] and batches [J, B, ...]. Sums are taken in another order
than for one client alone, so results agree closely, not to the last bit.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pad_sequence

from steelyard.client.containment import World
from steelyard.client.learner import Learner, Trained, descend, subtract
from steelyard.client.optimizers import why_not_together
from steelyard.client.working_model import working_model_in
from steelyard.data.examples import AnyExamples, Examples, share_a_table
from steelyard.layout import tensors_of
from steelyard.objectives.base import Local
from steelyard.schedules import Progress
from steelyard.seeds import Draws, digest_of_others, seeded
from steelyard.types import Broadcast, ClientId, Message, Reply, State

PADDING = -1  # the class of a padding row; NO_NUMBER is its target in regression
NO_NUMBER = -math.inf
Losses = Callable[[Tensor, Tensor], Tensor]


class _Linear(nn.Linear):
    """`nn.Linear` as a transposed product, which is twice as fast for many small layers under `vmap`."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 2:
            return super().forward(input)
        outputs = (self.weight @ input.T).T
        return outputs if self.bias is None else outputs + self.bias


class StackedModel(nn.Module):
    """Stacked copies of a model, called like one model: each copy gets its part of a batch."""

    def __init__(self, model: nn.Module, width: int, device: str = "cpu") -> None:
        super().__init__()
        self.base = copy.deepcopy(model).to(device).train()
        for module in self.base.modules():
            if type(module) is nn.Linear:
                module.__class__ = _Linear
        parameters, self.constants = dict(self.base.named_parameters()), dict(self.base.named_buffers())
        self.stacks = {
            name: parameter.detach().expand(width, *parameter.shape).clone()
            for name, parameter in parameters.items()
        }
        self.rows = [
            {**{name: stack[row] for name, stack in self.stacks.items()}, **self.constants}
            for row in range(width)
        ]
        self.trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
        self.use(width)

    def use(self, count: int) -> list[Tensor]:
        """Use the first few copies; returns the parameters that are trained, [count, ...] each."""
        self.leaves = {name: stack[:count].detach() for name, stack in self.stacks.items()}
        return [self.leaves[name].requires_grad_() for name in self.trained]

    def changes_itself(self) -> bool:
        """Whether a call has changed frozen parameters, or put other tensors in the places of buffers."""
        named, buffers = dict(self.base.named_parameters()), dict(self.base.named_buffers())
        frozen = {name: stack for name, stack in self.stacks.items() if name not in self.trained}
        return any(buffers.get(name) is not buffer for name, buffer in self.constants.items()) or any(
            not torch.equal(stack, named[name].expand_as(stack)) for name, stack in frozen.items()
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [J·B, ...] and outputs [J·B, C], client by client."""
        count = len(self.leaves[self.trained[0]])
        outputs: Tensor = vmap(self._one)(self.leaves, inputs.view(count, -1, *inputs.shape[1:]))
        return outputs.flatten(0, 1)

    def _one(self, tensors: dict[str, Tensor], inputs: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self.base, tensors, (inputs,))
        return outputs


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
    local = Local(model, parameters, broadcast, 0, learner.layout, came_down=came_down, task=learner.task)
    local_loss = learner.objective.bind(local)
    assert local_loss.losses is not None
    picks = [
        list(learner.batches(broadcast.round, client, len(mine)))
        for client, mine in zip(clients, data, strict=True)
    ]
    key = (learner.seed, broadcast.round)
    steps = descend(
        partial(_mean_losses, local_loss.losses),
        _batches(data, picks, [Draws(*key, client, "train") for client in clients], parameters[0].device),
        parameters,
        learner.training,
        local_loss.add_gradient,
        Progress(broadcast.round, broadcast.rounds),
    )
    history, kept = [], {}
    for number, losses in enumerate(steps, 1):
        history.append(losses)
        for place in [place for place, mine in enumerate(picks) if len(mine) == number]:
            # Read the update now: the copy keeps changing while other clients have steps left.
            after = learner.sharing.read_trained(model.rows[place], learner.layout, broadcast.message)
            subtract(after.map(Tensor.cpu), broadcast.message, rows[place])
            kept[place] = learner.sharing.keep(model.rows[place], learner.layout)
    counts = torch.tensor([len(mine) for mine in picks])
    totals = torch.stack(history).cpu().cumsum(0)[counts - 1, torch.arange(len(counts))]
    return [
        Trained(
            Reply(client, rows[place], len(data[place]), {"loss": loss, "steps": float(count)}), kept[place]
        )
        for place, (client, loss, count) in enumerate(
            zip(clients, (totals / counts).tolist(), counts.tolist(), strict=True)
        )
    ]


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
    picks: Sequence[Sequence[Tensor]],
    draws: Sequence[Draws],
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs [J·B, ...] and targets [J, B] of each step, padded where a batch is short or missing."""
    together = all(share_a_table(each, data[0]) for each in data)
    nothing = torch.zeros(0, dtype=torch.int64)
    for step in range(max(map(len, picks))):
        positions = [mine[step] if step < len(mine) else nothing for mine in picks]
        inputs, targets = _gather(data, positions) if together else _collect(data, positions, draws)
        yield inputs.to(device), targets.to(device)


def _gather(data: Sequence[Any], positions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Batches of clients that share one table, read at once."""
    rows = [each.rows.index_select(0, chosen) for each, chosen in zip(data, positions, strict=True)]
    padded = pad_sequence(rows, batch_first=True, padding_value=PADDING)
    inputs, targets = data[0].read(padded.clamp(min=0).flatten())
    return inputs, targets.view(padded.shape).where(padded != PADDING, _padding(targets))


def _collect(
    data: Sequence[AnyExamples], positions: Sequence[Tensor], draws: Sequence[Draws]
) -> tuple[Tensor, Tensor]:
    """Batches from each client's own data; a data set's code draws what it would draw alone."""
    parts = []
    for each, chosen, drawing in zip(data, positions, draws, strict=True):
        if isinstance(each, Examples):
            parts.append(each.batch(chosen))
        else:
            with World(), drawing():
                parts.append(each.batch(chosen))
    inputs, targets = map(list, zip(*parts, strict=True))
    filled = pad_sequence(targets, batch_first=True, padding_value=_padding(targets[0]))
    return pad_sequence(inputs, batch_first=True).flatten(0, 1), filled


def _padding(targets: Tensor) -> float:
    """A target value that marks padding."""
    return NO_NUMBER if targets.is_floating_point() else PADDING
