"""Bodies that the shared head understands."""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.teacher import Taught, Teacher, has_teacher


@dataclass(frozen=True)
class Anchor(Taught):
    """Add the shared head's own cross-entropy on a client's embeddings to another objective.

    The head stands still and the body learns to be understood by it. Heads that were grown on bodies of their
    own live in unrelated embeddings, and their mean classifies nobody's; held to one head, bodies come to
    speak one language, and what one client's head has learnt is of use to the next.
    """

    strength: float = 1.0
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        if not 0 <= self.strength < math.inf:
            raise InputError(
                f"objective 'anchor': strength must be a number of at least 0, not {self.strength}."
            )

    def bind(self, local: Local) -> LocalLoss:
        base, teacher = self.base.bind(local), Teacher(local)
        if not has_teacher(local):
            return LocalLoss(base.loss, base.add_gradient)

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            with teacher:
                value = base.loss(inputs, targets)
            return value + self.strength * F.cross_entropy(teacher(teacher.embedding), targets)

        return LocalLoss(loss, base.add_gradient)
