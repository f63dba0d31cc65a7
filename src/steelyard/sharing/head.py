"""Only the head travels (CHFL): bodies may differ, and stay where they are."""

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
    """The head of every model travels, and its body, of whatever kind, stays with its client.

    The head is the layer of this name or, by default, the last linear one. With `adopt`, a client goes on
    from the merged head; without it, from its own, and the merged one is there for an objective to learn
    from. Clients that do not adopt it begin with one head in common, or with `common = false` each with its
    own. A `posterior` has variances, too.
    """

    layer: str | None = None
    adopt: bool = True
    common: bool = True
    posterior: bool = False

    @property
    def slots(self) -> frozenset[str]:
        return self._inside.slots

    @property
    def has_private_layers(self) -> bool:
        return True

    def layout(self, model: nn.Module) -> Layout:
        name = head_name(model, self.layer)
        whole = self._inside.layout(model)
        layout = whole.within(f"{name}." if name else "")
        if not layout.parameters:
            raise InputError(f"the head {name!r} of the model {type(model).__name__} has no parameters.")
        return layout

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        return self._inside.read(tensors, layout)

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        """The head is the one that came down, unless the client has kept its own."""
        self._inside.write(tensors, layout, message, state)
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
    def _inside(self) -> Sharing:
        """How the head itself travels."""
        return Posterior() if self.posterior else WholeModel()

    def _body(self, tensors: Tensors, layout: Layout) -> dict[str, torch.Tensor]:
        prefix = layout.prefix
        return {BODY + name: value.clone() for name, value in tensors.items() if not name.startswith(prefix)}

    def _head(self, tensors: Tensors, layout: Layout) -> dict[str, torch.Tensor]:
        prefix = layout.prefix
        return {HEAD + name: value.clone() for name, value in tensors.items() if name.startswith(prefix)}
