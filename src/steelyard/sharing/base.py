"""What a sharing rule is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from steelyard.layout import Layout
from steelyard.types import Message, State

Tensors = Mapping[str, Tensor]
"""A model's parameters and buffers by name (`steelyard.layout.tensors_of`)."""


class Sharing(ABC):
    """What travels, and what stays with the client?"""

    slots: ClassVar[frozenset[str]] = frozenset({"mean"})
    """The vectors that a message carries."""

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
