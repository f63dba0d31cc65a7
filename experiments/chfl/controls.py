"""Control teachers that carry no knowledge of other clients: gains that they also give are not due to it."""

import copy
from dataclasses import dataclass

from steelyard.layout import tensors_of
from steelyard.objectives import Distillation
from steelyard.objectives.base import Local
from steelyard.objectives.teacher import Teacher


@dataclass(frozen=True)
class Scrambled(Distillation):
    """The shared head with its classes shifted by one: each row stands for the next class."""

    def teacher(self, local: Local) -> Teacher:
        teacher = Teacher(local)
        for value in tensors_of(teacher.head).values():
            value.copy_(value.roll(1, dims=0))
        return teacher


@dataclass(frozen=True)
class SelfTaught(Distillation):
    """The client's own head at the start of the round."""

    def teacher(self, local: Local) -> Teacher:
        teacher = Teacher(local)
        teacher.head = copy.deepcopy(teacher.student).eval().requires_grad_(False)
        return teacher
