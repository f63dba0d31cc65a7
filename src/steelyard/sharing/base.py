"""The interface of sharing rules."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from steelyard.layout import Layout, tensors_of
from steelyard.types import Message, State

Tensors = Mapping[str, Tensor]
"""A model's parameters and buffers by name (`steelyard.layout.tensors_of`)."""


class Sharing(ABC):
    """Which tensors of a model are shared, and which stay with the client."""

    @property
    def slots(self) -> frozenset[str]:
        """The vectors in a message."""
        return frozenset({"mean"})

    @property
    def has_private_layers(self) -> bool:
        """Whether part of each client's model is never shared, so that every client has its own model."""
        return False

    @property
    def shares_a_part(self) -> bool:
        """Whether less than the whole model travels; then the record says what whole models would take."""
        return self.has_private_layers

    @property
    def allows_own_models(self) -> bool:
        """Whether clients may bring models of their own."""
        return self.has_private_layers

    def why_not_beside(self, own: nn.Module, common: nn.Module | None) -> str | None:
        """The reason why a client cannot bring its own model beside the common one, if there is one."""
        return None

    @property
    def has_factors(self) -> bool:
        """Whether some of what travels are factors of products (`Layout.pairs`)."""
        return False

    @abstractmethod
    def layout(self, model: nn.Module) -> Layout:
        """The place of each shared tensor in the message vectors."""

    @abstractmethod
    def read(self, tensors: Tensors, layout: Layout) -> Message:
        """The message for a model's shared tensors."""

    def read_trained(self, tensors: Tensors, layout: Layout, came_down: Message) -> Message:
        """The message for a model that was trained from the message that came down."""
        return self.read(tensors, layout)

    def update(self, tensors: Tensors, layout: Layout, came_down: Message, row: Message) -> Message:
        """Write what training has changed into `row`: the difference of the means, and the variances.

        The row may be on another device than the model.
        """
        after = self.read_trained(tensors, layout, came_down)
        if after.mean.device == row.mean.device:
            torch.sub(after.mean, came_down.mean, out=row.mean)
        else:
            row.mean.copy_(after.mean - came_down.mean)
        if row.variance is not None and after.variance is not None:
            row.variance.copy_(after.variance)
        return row

    @abstractmethod
    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        """Load the server's message and the client's kept state into a model."""

    @abstractmethod
    def keep(self, tensors: Tensors, layout: Layout) -> State:
        """Copies of the tensors that the client keeps until its next round."""

    def start(self, tensors: Tensors, layout: Layout) -> State:
        """The state of a client before its first round, from its initial model."""
        return self.keep(tensors, layout)

    def without_private_head(self, state: State) -> State:
        """The state without the client's own copy of the shared tensors, to evaluate the server's instead."""
        return state

    def shared_part(self, model: nn.Module, values: Message | None = None) -> nn.Module:
        """A copy of the part of a model that is shared, with its own values or those of a message."""
        model = copy.deepcopy(model)
        tensors, layout = tensors_of(model), self.layout(model)
        if values is not None:
            start = self.without_private_head(self.start(tensors, layout))
            self.write(tensors, layout, values, start)
        return model.get_submodule(layout.prefix.removesuffix(".")).eval()
