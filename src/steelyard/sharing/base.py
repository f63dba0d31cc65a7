"""What a sharing rule is."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from steelyard.layout import Layout
from steelyard.types import Message, State


class Sharing(ABC):
    """What travels, and what stays with the client?"""

    slots: ClassVar[frozenset[str]] = frozenset({"mean"})
    """The vectors that a message carries."""

    @abstractmethod
    def layout(self, model: nn.Module) -> Layout:
        """Where the tensors that travel lie in the message."""

    @abstractmethod
    def read(self, model: nn.Module, layout: Layout) -> Message:
        """The message that describes a model."""

    @abstractmethod
    def write(self, model: nn.Module, layout: Layout, message: Message, state: State) -> None:
        """Make a model from what came down and what stayed with the client."""

    @abstractmethod
    def keep(self, model: nn.Module, layout: Layout) -> State:
        """What stays with the client until its next round."""
