"""What a sharing rule is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor, nn

from steelyard.layout import Layout
from steelyard.types import Message, State

Tensors = Mapping[str, Tensor]
"""A model's parameters and buffers by name (`steelyard.layout.tensors_of`)."""


class Sharing(ABC):
    """What travels, and what stays with the client?"""

    @property
    def slots(self) -> frozenset[str]:
        """The vectors that a message carries."""
        return frozenset({"mean"})

    @property
    def has_private_layers(self) -> bool:
        """Whether every client ends up with a model of its own, part of which never travels."""
        return False

    @abstractmethod
    def layout(self, model: nn.Module) -> Layout:
        """Where the tensors that travel lie in the message."""

    @abstractmethod
    def read(self, tensors: Tensors, layout: Layout) -> Message:
        """The message that describes a model."""

    @abstractmethod
    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        """Make a model from what came down and what stayed with the client."""

    @abstractmethod
    def keep(self, tensors: Tensors, layout: Layout) -> State:
        """What stays with the client until its next round."""

    def start(self, tensors: Tensors, layout: Layout) -> State:
        """What a client has before its first round, from its model as it was built."""
        return self.keep(tensors, layout)

    def without_private_head(self, state: State) -> State:
        """What a client has kept, without its own form of what travels: to look at that on its data."""
        return state
