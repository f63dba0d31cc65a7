"""A client's model: as it was built, and as it is after a round."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from steelyard.client.private_state import PrivateStates
from steelyard.data.clients import Client, Population
from steelyard.errors import InputError, unknown
from steelyard.layout import tensors_of
from steelyard.sharing import Sharing
from steelyard.types import ClientId, Message, State


def model_of(client: Client, common: nn.Module | None) -> nn.Module:
    """The client's own model, or the common one."""
    model = common if client.model is None else client.model
    if model is None:
        raise InputError(
            f"client {client.id!r} brings no model, and the federation has none; give one of them a model."
        )
    return model


def as_trained(model: nn.Module, sharing: Sharing, message: Message, state: State) -> nn.Module:
    """The model itself, with the shared values of `message` and a client's private state written into it."""
    tensors, layout = tensors_of(model), sharing.layout(model)
    sharing.write(tensors, layout, message, state or sharing.start(tensors, layout))
    return model.eval()


class OwnModels(Mapping[ClientId, nn.Module | None]):
    """The models that clients bring, as they were before the first round; None for the common model.

    A pickle or a copy has the models without the data of the clients. Those of a population are made when
    they are used, so a copy does not have them.
    """

    def __init__(self, clients: Mapping[ClientId, Client]) -> None:
        self._clients = clients

    def __getitem__(self, client: ClientId) -> nn.Module | None:
        return self._clients[client].model

    def __contains__(self, client: object) -> bool:
        return client in self._clients

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)

    def __reduce__(self) -> tuple[Any, ...]:
        lazy = isinstance(self._clients, Population)
        return dict, ({client: None if lazy else self[client] for client in self._clients},)


@dataclass(frozen=True, eq=False)
class ClientModels:
    """The whole models of clients after a round: called with a client's id, it makes a new module."""

    common: nn.Module | None
    """The model of clients that bring none."""
    own: Mapping[ClientId, nn.Module | None]
    sharing: Sharing
    message: Message
    """What is shared."""
    states: PrivateStates
    """What is not."""

    def __call__(self, client: ClientId) -> nn.Module:
        if client not in self.own:
            raise unknown("client", client, self.own)
        model = self.own[client]
        model = self.common if model is None else model
        if model is None:
            raise InputError(
                f"this copy of the result does not have the model that client {client!r} makes when it is "
                "used: call `model_of` of the result itself."
            )
        return as_trained(copy.deepcopy(model), self.sharing, self.message, self.states.get(client))
