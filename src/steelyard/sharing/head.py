"""Share only the head (CHFL): bodies stay with the clients and may differ."""

from dataclasses import dataclass

import torch
from torch import nn

from steelyard.errors import InputError
from steelyard.layout import Layout
from steelyard.nn.heads import head_name
from steelyard.sharing.base import Sharing, Tensors
from steelyard.sharing.posterior import Posterior
from steelyard.sharing.whole_model import WholeModel
from steelyard.types import Message, State

BODY, HEAD = "body.", "head."


@dataclass(frozen=True)
class Head(Sharing):
    """Share the head of every model; the body stays with its client and may have any architecture.

    The head is the layer named `layer` or, by default, the last linear layer. With `adopt`, a client
    continues from the merged head. Without it, the client continues from its own head, and the merged head is
    a teacher for objectives such as `Distillation`. Clients that do not adopt start from a common head or,
    with `common = false`, each from its own. With `posterior`, variances are shared as well.
    """

    layer: str | None = None
    adopt: bool = True
    common: bool = True
    posterior: bool = False

    @property
    def slots(self) -> frozenset[str]:
        return self._rule.slots

    @property
    def has_private_layers(self) -> bool:
        return True

    def layout(self, model: nn.Module) -> Layout:
        name = head_name(model, self.layer)
        layout = self._rule.layout(model).within(f"{name}." if name else "")
        if not layout.parameters:
            raise InputError(f"the head {name!r} of the model {type(model).__name__} has no parameters.")
        return layout

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        return self._rule.read(tensors, layout)

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        """Load the server's head, unless the client has kept its own."""
        self._rule.write(tensors, layout, message, state)
        for name, value in state.items():
            tensors[name.partition(".")[2]].copy_(value)

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return self._body(tensors, layout) | (self._head(tensors, layout) if not self.adopt else {})

    def start(self, tensors: Tensors, layout: Layout) -> State:
        own = not self.adopt and not self.common
        return self._body(tensors, layout) | (self._head(tensors, layout) if own else {})

    def without_private_head(self, state: State) -> State:
        return {name: value for name, value in state.items() if name.startswith(BODY)}

    @property
    def _rule(self) -> Sharing:
        """How the head's own tensors are shared."""
        return Posterior() if self.posterior else WholeModel()

    def _body(self, tensors: Tensors, layout: Layout) -> dict[str, torch.Tensor]:
        prefix = layout.prefix
        return {BODY + name: value.clone() for name, value in tensors.items() if not name.startswith(prefix)}

    def _head(self, tensors: Tensors, layout: Layout) -> dict[str, torch.Tensor]:
        prefix = layout.prefix
        return {HEAD + name: value.clone() for name, value in tensors.items() if name.startswith(prefix)}
