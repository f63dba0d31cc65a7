"""Share the whole model."""

from dataclasses import dataclass

from torch import nn

from steelyard.layout import Layout, flatten, layout_of, load, subtract
from steelyard.sharing.base import Sharing, Tensors
from steelyard.types import EMPTY, Message, State


@dataclass(frozen=True)
class WholeModel(Sharing):
    """Share every parameter and floating-point buffer; clients keep no state."""

    def layout(self, model: nn.Module) -> Layout:
        return layout_of(model)

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        return Message(flatten(tensors, layout))

    def update(self, tensors: Tensors, layout: Layout, came_down: Message, row: Message) -> Message:
        if not is_flat(self) or came_down.mean.device != row.mean.device:
            return super().update(tensors, layout, came_down, row)
        subtract(tensors, came_down.mean, layout, row.mean)
        return row

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        load(tensors, message.mean, layout)

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return EMPTY


def is_flat(sharing: Sharing) -> bool:
    """Whether a model's message is its tensors one after the other, and nothing else."""
    kind = type(sharing)
    return (
        isinstance(sharing, WholeModel)
        and kind.read is WholeModel.read
        and kind.read_trained is Sharing.read_trained
    )
