"""Every client's model: as it was built, what it would weigh on the wire, and as it is after a round."""

import copy
from collections.abc import Mapping
from functools import cached_property

from torch import nn

from steelyard.data.clients import Client, Population
from steelyard.layout import layout_of, tensors_of
from steelyard.sharing import Sharing
from steelyard.types import ClientId, Message, State


class Models:
    """Clients have models of their own, or the one for all who bring none."""

    def __init__(
        self, clients: Mapping[ClientId, Client], common: nn.Module | None, sharing: Sharing
    ) -> None:
        self.clients, self.common, self.sharing = clients, common, sharing

    @cached_property
    def example(self) -> nn.Module:
        """One of them: what travels is alike in all."""
        return self.of(next(iter(self.clients))) if self.common is None else self.common

    def of(self, client: ClientId) -> nn.Module:
        """A client's model as it was built."""
        own = self.clients[client].model
        model = self.common if own is None else own
        assert model is not None
        return model

    def nbytes(self, client: ClientId) -> int:
        """What a client's whole model would take; those of a population are taken to be alike."""
        return self._own_sizes.get(client, self._size)

    def after(self, evaluated_model: Message, client: ClientId | None, kept: State | None) -> nn.Module:
        """What is shared, after a round, as a module of its own; or one client's model with what it kept."""
        model = copy.deepcopy(self.example if client is None else self.of(client))
        tensors, layout = tensors_of(model), self.sharing.layout(model)
        start = self.sharing.start(tensors, layout)
        kept = self.sharing.without_private_head(start) if client is None else kept or start
        self.sharing.write(tensors, layout, evaluated_model, kept)
        part = layout.prefix.removesuffix(".") if client is None else ""
        return model.get_submodule(part).eval()

    @cached_property
    def _size(self) -> int:
        return layout_of(self.example).nbytes

    @cached_property
    def _own_sizes(self) -> dict[ClientId, int]:
        if isinstance(self.clients, Population):
            return {}
        own = {id: client.model for id, client in self.clients.items()}
        return {id: layout_of(model).nbytes for id, model in own.items() if model is not None}
