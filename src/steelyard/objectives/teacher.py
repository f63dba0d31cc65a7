"""The shared head as a teacher: what it says of the embeddings that a client's own body makes (CHFL)."""

import copy
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from steelyard.layout import load, tensors_of
from steelyard.nn.variational import point_valued
from steelyard.objectives.base import Local, Targets, Wrapper


class Teacher:
    """The head that came down, as it came; a Bayesian one at its means.

    Inside of `with teacher:`, what passes the client's own head is seen: its `embedding` and its `logits`.
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
        self.hook = self.student.register_forward_hook(self._see)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hook.remove()

    def _see(self, head: nn.Module, inputs: tuple[Any, ...], logits: Tensor) -> None:
        self.embedding: Tensor = inputs[0]
        self.logits = logits


class Taught(Wrapper):
    """An objective that adds what the shared head says of a client's classes."""

    @property
    def targets(self) -> Targets:
        return "classes"

    @property
    def of_head(self) -> bool:
        return True


def has_teacher(local: Local) -> bool:
    """Whether a head has been merged yet: the first that comes down knows nothing."""
    return local.broadcast.round > 1
