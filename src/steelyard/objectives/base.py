"""The interface of objectives: what a client minimises."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from steelyard.layout import Layout
from steelyard.task import FittedTask
from steelyard.types import Broadcast

Targets = Literal["classes", "labels", "numbers", "any"]
OFFERED_BY_EVERY_RUN = frozenset({"classes"})
"""Vectors that any run offers if they are needed: the number of examples per class, over all clients."""


def empty_labels() -> Tensor:
    """Default for objectives that need no labels."""
    return torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Local:
    """What an objective knows about a client and its round before the first training step."""

    model: nn.Module
    parameters: Sequence[Tensor]
    """The trained parameters."""
    broadcast: Broadcast
    num_examples: int
    layout: Layout
    """The place of the shared tensors in the vectors of the broadcast."""
    labels: Callable[[], Tensor] = empty_labels
    """Returns the targets of all examples of the client, [N]."""
    came_down: Callable[[], AbstractContextManager[None]] = nullcontext
    """A context in which the model holds what came down from the server, also where the client goes on from a
    head of its own (`Head(adopt=False)`). Private layers are as they were after the client's last round."""
    task: FittedTask = field(default_factory=FittedTask)
    """How the model is called, and what the targets are."""

    @property
    def forward(self) -> Callable[[Any], Any]:
        """From the inputs of a batch to the model's outputs, as the loss sees them."""
        return self.task.forward(self.model)


def add_no_gradient() -> None:
    """Default for objectives without a closed-form gradient."""


class LocalLoss(NamedTuple):
    """An objective bound to one client and round."""

    loss: Callable[[Tensor, Tensor], Tensor]
    """The differentiable mean loss of a batch (inputs, targets)."""
    add_gradient: Callable[[], None] = add_no_gradient
    """Adds closed-form terms to the parameters' gradients; called after the backward pass."""
    losses: Callable[[Tensor, Tensor], Tensor] | None = None
    """The loss of each example, [B]. Given only if the loss depends on the model's outputs alone and
    `add_gradient` is elementwise: then one binding can train many clients at once on stacked parameters."""


class Objective(ABC):
    """What a client minimises. Objectives can wrap each other: `Proximal(base=CrossEntropy())`."""

    @property
    def needs(self) -> frozenset[str]:
        """Names of the vectors that the broadcast must offer."""
        return frozenset()

    @property
    def targets(self) -> Targets:
        """What targets it accepts: "classes" (class numbers), "labels" (0 or 1 for each of several),
        "numbers" (regression) or "any"."""
        return "any"

    @property
    def needs_shared_head(self) -> bool:
        """Whether clients must share a head, because the loss uses it."""
        return False

    def check(self, task: FittedTask) -> None:  # noqa: B027 - most have nothing to check
        """Refuse settings that do not fit a task, before the first round."""

    @abstractmethod
    def bind(self, local: Local) -> LocalLoss:
        """Prepare the objective for one client and round."""
