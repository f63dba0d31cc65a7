"""Train client bodies to produce embeddings that the shared head classifies."""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.teacher import Teacher, TeacherObjective, has_teacher


@dataclass(frozen=True)
class Anchor(TeacherObjective):
    """Add strength · the cross-entropy of the shared head on a client's embeddings to another objective.

    The shared head is frozen, and only the body is trained by this term. Heads that are trained on separate
    bodies belong to unrelated embedding spaces, so that their mean classifies no client's embeddings. With
    one common head, the embedding spaces become alike and clients can use each other's heads.
    """

    strength: float = 1.0
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.strength < math.inf:
            raise InputError(
                f"objective 'anchor': strength must be a finite number, at least 0, not {self.strength}."
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
