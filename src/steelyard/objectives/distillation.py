"""Decoupled knowledge distillation (Zhao et al., 2022) from the shared head (CHFL)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.teacher import Taught, Teacher, has_teacher


@dataclass(frozen=True)
class Distillation(Taught):
    """Add α · DKD between a client's own head and the shared one, its teacher, to another objective (CHFL).

    The teacher is the head that came down, on the client's own embeddings; there is none in the first round.
    The temperature of the classes that are not the target falls from 2β + 1 to 1 over the rounds; as
    `literal`, only the teacher has it. The published rule adds heads up where the mean is taken here: that
    is a `scale` of the teacher's logits by the number of clients.
    """

    alpha: float = 0.5
    beta: float = 5.0
    literal: bool = False
    scale: float = 1.0
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "scale"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(
                    f"objective 'distillation': {name} must be a number of at least 0, "
                    f"not {getattr(self, name)}."
                )

    def teacher(self, local: Local) -> Teacher:
        """Who teaches: the head that came down."""
        return Teacher(local)

    def bind(self, local: Local) -> LocalLoss:
        base, teacher = self.base.bind(local), self.teacher(local)
        if not has_teacher(local):
            return LocalLoss(base.loss, base.add_gradient)
        heat = temperature(local.broadcast.round, local.broadcast.rounds, self.beta)

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            with teacher:
                value = base.loss(inputs, targets)
            with torch.no_grad():
                taught = self.scale * teacher(teacher.embedding)
            own = 1.0 if self.literal else heat
            return value + self.alpha * dkd(teacher.logits, taught, targets, own, heat)

        return LocalLoss(loss, base.add_gradient)


def dkd(
    student: Tensor, teacher: Tensor, targets: Tensor, student_heat: float, teacher_heat: float
) -> Tensor:
    """KL(b̄‖b) + KL(p̄‖p), the mean over a batch of logits [B, C].

    b is (the target's probability, all the rest), at temperature 1; p are the others among themselves.
    """
    chosen = F.one_hot(targets, student.shape[1]).bool()
    target = kl(binary(teacher, chosen), binary(student, chosen))
    if student.shape[1] == 2:  # one other class is certain among itself
        return target.mean()
    rest = kl(others(teacher, chosen, teacher_heat), others(student, chosen, student_heat))
    return (target + rest).mean()


def binary(logits: Tensor, chosen: Tensor) -> Tensor:
    """Log-probabilities [B, 2] of the target and of all others together."""
    sums = [logits.masked_fill(mask, -math.inf).logsumexp(dim=1) for mask in (~chosen, chosen)]
    return torch.stack(sums, dim=1).log_softmax(dim=1)


def others(logits: Tensor, chosen: Tensor, heat: float) -> Tensor:
    """Log-probabilities [B, C − 1] of the others among themselves."""
    rest = logits[~chosen].view(len(logits), -1)
    return (rest / heat).log_softmax(dim=1)


def kl(wanted: Tensor, given: Tensor) -> Tensor:
    """KL(wanted‖given) of each row of log-probabilities."""
    return (wanted.exp() * (wanted - given)).sum(dim=1)


def temperature(round: int, rounds: int, beta: float) -> float:
    """From 2β + 1 down to 1, along a cosine; 1 if nobody knows how many rounds there will be."""
    return beta * (1 + math.cos(math.pi * round / rounds)) + 1 if rounds > 0 else 1.0
