"""Teachers that know nothing of the others: if a client learns as much from them, it was no knowledge."""

import copy
from dataclasses import dataclass

from steelyard.layout import tensors_of
from steelyard.objectives import Distillation
from steelyard.objectives.base import Local
from steelyard.objectives.teacher import Teacher


@dataclass(frozen=True)
class Scrambled(Distillation):
    """The shared head with its classes mixed up: each row of it speaks for the next class."""

    def teacher(self, local: Local) -> Teacher:
        found = Teacher(local)
        for value in tensors_of(found.head).values():
            value.copy_(value.roll(1, dims=0))
        return found


@dataclass(frozen=True)
class SelfTaught(Distillation):
    """The client's own head as it was when the round began."""

    def teacher(self, local: Local) -> Teacher:
        found = Teacher(local)
        found.head = copy.deepcopy(found.student).eval().requires_grad_(False)
        return found
