"""The posterior travels: of every weight the mean, and the variance where there is one."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.layout import Entry, Layout, flatten, layout_of, load
from steelyard.nn.variational import variational_layers
from steelyard.sharing.base import Sharing, Tensors
from steelyard.types import EMPTY, Message, State

LEAST, MOST = 1e-20, 1e20  # a Bayesian weight's variance is held within; float32 can go on from either end


@dataclass(frozen=True)
class Posterior(Sharing):
    """Means and variances travel. A variance is 0 where the model has no Bayesian weight, and only there.

    How a layer keeps its variances is its own affair (`steelyard.nn.variational`): no spread travels.
    """

    @property
    def slots(self) -> frozenset[str]:
        return frozenset({"mean", "variance"})

    def layout(self, model: nn.Module) -> Layout:
        spreads = {
            name
            for prefix, layer in variational_layers(model).items()
            for name in _named(prefix, layer)
            if name.endswith("_spread")
        }
        layout = layout_of(model, leave_out=spreads)
        travelling = {entry.name for entry in layout.parameters}
        if tied := sorted(name for name in spreads if name.removesuffix("_spread") not in travelling):
            raise InputError(
                f"parameter {tied[0].removesuffix('_spread')!r} is Bayesian and tied to another layer's; "
                "make fewer layers Bayesian."
            )
        return layout

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        mean = flatten(tensors, layout)
        variance = torch.zeros_like(mean)
        for entry, spread, pace in _bayesian(tensors, layout):
            found = (2 * pace.double() * spread.double()).exp().clamp(LEAST, MOST)
            variance[entry.start : entry.stop] = found.reshape(-1)
        return Message(mean, variance)

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        load(tensors, message.mean, layout)
        assert message.variance is not None
        for entry, spread, pace in _bayesian(tensors, layout):
            wanted = message.variance[entry.start : entry.stop].view(entry.shape).double()
            spread.copy_(wanted.clamp(LEAST, MOST).log() / (2 * pace.double()))

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return EMPTY


def _named(prefix: str, layer: nn.Module) -> list[str]:
    """The names of a layer's own parameters in the model."""
    return [name for name, _ in layer.named_parameters(prefix, recurse=False)]


def _bayesian(tensors: Tensors, layout: Layout) -> Iterator[tuple[Entry, Tensor, Tensor]]:
    """Where each Bayesian tensor's mean lies in the message, and the spread and pace beside it."""
    for entry in layout.parameters:
        spread = tensors.get(f"{entry.name}_spread")
        pace = tensors.get(entry.name[: entry.name.rfind(".") + 1] + "pace")
        if spread is not None and pace is not None:
            yield entry, spread, pace
