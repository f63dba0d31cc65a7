"""Does code of the user's own run at the sites? Where none does, containing and seeding it can be saved."""

from collections.abc import Mapping

from torch import nn

from steelyard.data.clients import Client, Population
from steelyard.data.examples import AnyExamples, DatasetExamples, StreamExamples
from steelyard.objectives.base import Objective
from steelyard.objectives.own_loss import OwnLoss
from steelyard.settings import Training
from steelyard.types import ClientId

OUR_PACKAGES = ("torch", "steelyard")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_own_code(thing: object) -> bool:
    """Whether an object's class, or a function, comes neither from torch nor from steelyard."""
    kind = thing if isinstance(thing, type) or hasattr(thing, "__code__") else type(thing)
    return str(getattr(kind, "__module__", "")).partition(".")[0] not in OUR_PACKAGES


def has_own_layers(model: nn.Module) -> bool:
    """Whether code of the user's own runs when a model is called."""
    return any(
        is_own_code(module) or "forward" in vars(module) or any(map(vars(module).get, HOOKS))
        for module in model.modules()
    )


def has_own_terms(objective: Objective) -> bool:
    """Whether an objective, or one that it wraps, is of the user's own."""
    if isinstance(objective, OwnLoss):
        function = objective.function
        return has_own_layers(function) if isinstance(function, nn.Module) else is_own_code(function)
    base = getattr(objective, "base", None)
    return is_own_code(objective) or (isinstance(base, Objective) and has_own_terms(base))


def has_own_steps(training: Training) -> bool:
    """Whether code of the user's own makes the optimiser, or decides the learning rate."""
    return is_own_code(training.schedule) or (
        not isinstance(training.optimizer, str) and is_own_code(training.optimizer)
    )


def has_own_data(clients: Mapping[ClientId, Client], test: AnyExamples | None) -> bool:
    """Whether clients are created, or data read, by code of the user's own."""
    if isinstance(test, DatasetExamples | StreamExamples):
        return True
    if isinstance(clients, Population):
        return clients.own_code
    return any(
        client.own_code or (client.model is not None and has_own_layers(client.model))
        for client in clients.values()
    )
