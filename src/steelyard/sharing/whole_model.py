"""The whole model travels."""

from dataclasses import dataclass

from torch import nn

from steelyard.layout import Layout, flatten, layout_of, load
from steelyard.sharing.base import Sharing, Tensors
from steelyard.types import EMPTY, Message, State


@dataclass(frozen=True)
class WholeModel(Sharing):
    """Every parameter and floating-point buffer travels; nothing stays behind."""

    def layout(self, model: nn.Module) -> Layout:
        return layout_of(model)

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        return Message(flatten(tensors, layout))

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        load(tensors, message.mean, layout)

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return EMPTY
