"""Share only what is trained: frozen parameters stay where they are."""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn

from steelyard.errors import unknown
from steelyard.layout import Layout, layout_of
from steelyard.sharing.whole_model import WholeModel

Buffers = Literal["shared", "fixed"]


@dataclass(frozen=True)
class Trainable(WholeModel):
    """Share only the parameters that are trained; frozen ones come with the model and are never sent.

    Floating-point buffers (BatchNorm's running statistics) are shared as in `whole-model` or, with `buffers =
    "fixed"`, keep the values that came with the model. All clients must have the same frozen values. If a
    model changes them when it is called (a codebook), its next training begins with the first values again.
    """

    buffers: Buffers = "shared"

    def __post_init__(self) -> None:
        if self.buffers not in get_args(Buffers):
            raise unknown("buffers", str(self.buffers), get_args(Buffers), of="sharing 'trainable'")

    @property
    def shares_a_part(self) -> bool:
        return True

    def layout(self, model: nn.Module) -> Layout:
        return layout_of(model, frozen_names(model), share_buffers=self.buffers == "shared")


def frozen_names(model: nn.Module) -> set[str]:
    """The names of the parameters that are not trained."""
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
