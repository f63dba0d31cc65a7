"""The shared head as a teacher: what it says of the embeddings that a client's own body makes (CHFL)."""

import copy
import math
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.layout import load, tensors_of
from steelyard.nn.variational import variational_layers
from steelyard.objectives.base import Local


class Teacher:
    """The head that came down, as it came; a Bayesian one at its means.

    Inside of `with teacher:`, what passes the client's own head is seen: its `embedding` and its `logits`.
    """

    def __init__(self, local: Local, needed_by: str) -> None:
        prefix = local.layout.prefix
        if not prefix:
            raise InputError(f"objective {needed_by!r} needs a head that is shared; take the sharing `head`.")
        self.student = local.model.get_submodule(prefix.removesuffix("."))
        self.head = copy.deepcopy(self.student).eval().requires_grad_(False)
        tensors = {prefix + name: value for name, value in tensors_of(self.head).items()}
        load(tensors, local.broadcast.message.mean, local.layout)
        for layer in variational_layers(self.head).values():
            for spread in (layer.weight_spread, layer.bias_spread):
                if spread is not None:
                    spread.fill_(-math.inf)

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


def known(local: Local) -> bool:
    """Whether a head has been merged yet: the first that comes down knows nothing."""
    return local.broadcast.round > 1
