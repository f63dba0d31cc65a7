"""Decoupled knowledge distillation (Zhao et al., 2022) from the shared head (CHFL)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.teacher import Teacher, TeacherObjective, has_teacher


@dataclass(frozen=True)
class Distillation(TeacherObjective):
    """Add α · DKD between a client's own head and the shared head, its teacher, to another objective (CHFL).

    The teacher is the shared head on the client's own embeddings; in the first round there is none. The
    temperature of the non-target classes falls from 2β + 1 to 1 over the rounds, for student and teacher or,
    with `literal`, for the teacher only. The published rule sums the heads where steelyard averages them; to
    reproduce it, set `scale`, a factor on the teacher's logits, to the number of clients.
    """

    alpha: float = 0.5
    beta: float = 5.0
    literal: bool = False
    scale: float = 1.0
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "beta", "scale"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(
                    f"objective 'distillation': {name} must be a finite number, at least 0, "
                    f"not {getattr(self, name)}."
                )

    def teacher(self, local: Local) -> Teacher:
        """The teacher; subclasses can use another one."""
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
                teacher_logits = self.scale * teacher(teacher.embedding)
            student_heat = 1.0 if self.literal else heat
            return value + self.alpha * dkd(teacher.logits, teacher_logits, targets, student_heat, heat)

        return LocalLoss(loss, base.add_gradient)


def dkd(
    student: Tensor, teacher: Tensor, targets: Tensor, student_heat: float, teacher_heat: float
) -> Tensor:
    """KL(b̄‖b) + KL(p̄‖p), averaged over a batch of logits [B, C]; the bar marks the teacher.

    b = (probability of the target, probability of all other classes), at temperature 1. p are the
    probabilities of the other classes, given that it is one of them.
    """
    is_target = F.one_hot(targets, student.shape[1]).bool()
    target = kl(binary(teacher, is_target), binary(student, is_target))
    if student.shape[1] == 2:  # with one other class, p = 1 for student and teacher
        return target.mean()
    rest = kl(others(teacher, is_target, teacher_heat), others(student, is_target, student_heat))
    return (target + rest).mean()


def binary(logits: Tensor, is_target: Tensor) -> Tensor:
    """Log-probabilities [B, 2] of the target and of all other classes together."""
    sums = [logits.masked_fill(mask, -math.inf).logsumexp(dim=1) for mask in (~is_target, is_target)]
    return torch.stack(sums, dim=1).log_softmax(dim=1)


def others(logits: Tensor, is_target: Tensor, heat: float) -> Tensor:
    """Log-probabilities [B, C − 1] of the other classes, given that it is one of them."""
    rest = logits[~is_target].view(len(logits), -1)
    return (rest / heat).log_softmax(dim=1)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p‖q) of each row of log-probabilities."""
    return (p.exp() * (p - q)).sum(dim=1)


def temperature(round: int, rounds: int, beta: float) -> float:
    """Falls from 2β + 1 to 1 along a cosine; 1 if the number of rounds is unknown."""
    return beta * (1 + math.cos(math.pi * round / rounds)) + 1 if rounds > 0 else 1.0
