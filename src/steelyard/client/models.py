"""A client's model: as it was built, and as it is after a round."""

import copy

from torch import nn

from steelyard.data.clients import Client
from steelyard.errors import InputError
from steelyard.layout import tensors_of
from steelyard.sharing import Sharing
from steelyard.types import Message, State


def model_of(client: Client, common: nn.Module | None) -> nn.Module:
    """The client's own model, or the common one."""
    model = common if client.model is None else client.model
    if model is None:
        raise InputError(
            f"client {client.id!r} brings no model, and the federation has none; give one of them a model."
        )
    return model


def trained_model(
    client: Client, common: nn.Module | None, sharing: Sharing, message: Message, state: State
) -> nn.Module:
    """A new module: the client's model with the shared values of `message` and its private state."""
    return as_trained(copy.deepcopy(model_of(client, common)), sharing, message, state)


def as_trained(model: nn.Module, sharing: Sharing, message: Message, state: State) -> nn.Module:
    """The model itself, with the shared values of `message` and a client's private state written into it."""
    tensors, layout = tensors_of(model), sharing.layout(model)
    sharing.write(tensors, layout, message, state or sharing.start(tensors, layout))
    return model.eval()
