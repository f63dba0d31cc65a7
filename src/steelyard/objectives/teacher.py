"""The shared head as a teacher: its logits for the embeddings of a client's own body (CHFL)."""

import copy
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from steelyard.layout import load, tensors_of
from steelyard.nn.variational import point_valued
from steelyard.objectives.base import Local, Targets
from steelyard.objectives.wrapper import Wrapper


class Teacher:
    """A frozen copy of the round's shared head; Bayesian layers use their means.

    Inside `with teacher:`, a forward hook stores the input and output of the client's own head as `embedding`
    and `logits`.
    """

    def __init__(self, local: Local) -> None:
        prefix = local.layout.prefix
        self.student = local.model.get_submodule(prefix.removesuffix("."))
        self.head = copy.deepcopy(self.student).eval().requires_grad_(False)
        tensors = {prefix + name: value for name, value in tensors_of(self.head).items()}
        load(tensors, local.broadcast.message.mean, local.layout)
        point_valued(self.head)

    def __call__(self, embedding: Tensor) -> Tensor:
        logits: Tensor = self.head(embedding)
        return logits

    def __enter__(self) -> None:
        self.hook = self.student.register_forward_hook(self._store)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hook.remove()

    def _store(self, head: nn.Module, inputs: tuple[Any, ...], logits: Tensor) -> None:
        self.embedding: Tensor = inputs[0]
        self.logits = logits


class TeacherObjective(Wrapper):
    """A classification objective whose added term uses the shared head as a teacher."""

    @property
    def targets(self) -> Targets:
        return "classes"

    @property
    def needs_shared_head(self) -> bool:
        return True


def has_teacher(local: Local) -> bool:
    """Whether the shared head has been trained: in the first round it is the initial one."""
    return local.broadcast.round > 1
