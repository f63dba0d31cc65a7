"""What a client's objective is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from steelyard.layout import Layout
from steelyard.types import Broadcast

Targets = Literal["classes", "numbers", "any"]
ANNOUNCED = frozenset({"classes"})
"""What any run offers to who needs it: how many examples of each class all clients have together."""


def no_labels() -> Tensor:
    """Of nobody."""
    return torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Local:
    """One client's round, as an objective sees it before the first step."""

    model: nn.Module
    parameters: Sequence[Tensor]
    """Those that are trained."""
    broadcast: Broadcast
    num_examples: int
    layout: Layout
    """Where the tensors that travel lie in the vectors that came down."""
    labels: Callable[[], Tensor] = no_labels
    """Asks for the client's targets, all of them."""


def nothing() -> None:
    """No closed-form gradient to add."""


class LocalLoss(NamedTuple):
    """An objective made ready for one client's round."""

    loss: Callable[[Tensor, Tensor], Tensor]
    """The differentiable mean loss of a batch (inputs, targets)."""
    add_gradient: Callable[[], None] = nothing
    """Adds to the parameters' gradients, after the backward pass, what has a closed form."""
    losses: Callable[[Tensor, Tensor], Tensor] | None = None
    """The loss of each example, where it is made of the model's outputs alone and the closed-form gradient is
    elementwise. Then one binding serves many clients at once, with their parameters on top of each other."""


class Objective(ABC):
    """What does a client minimise? Objectives wrap each other: `Proximal(base=CrossEntropy())`."""

    @property
    def needs(self) -> frozenset[str]:
        """Names of the vectors that something in the run must offer."""
        return frozenset()

    @property
    def targets(self) -> Targets:
        """What the targets must be: class numbers, numbers to be met, or whatever the clients have."""
        return "any"

    @property
    def of_head(self) -> bool:
        """Whether it learns from a head that is shared."""
        return False

    @abstractmethod
    def bind(self, local: Local) -> LocalLoss: ...


class Wrapper(Objective):
    """An objective that adds something to another one, its `base`."""

    base: Objective

    @property
    def needs(self) -> frozenset[str]:
        return self.base.needs

    @property
    def targets(self) -> Targets:
        return self.base.targets

    @property
    def of_head(self) -> bool:
        return self.base.of_head
