"""A simulation in plain values, to notice that a run goes on with other data, models or another engine."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from steelyard.contents import Hasher, plain_settings, short_hash
from steelyard.data.clients import Population
from steelyard.data.examples import AnyExamples
from steelyard.devices import kind_of
from steelyard.engines.base import Engine
from steelyard.engines.workload import Workload
from steelyard.layout import tensors_of
from steelyard.sharing import Sharing
from steelyard.texts import kebab

SAME_BITS = ("serial", "pool")
"""Engines that give the same bits; so does `ray`, whose nodes are pools unless a setting says otherwise."""


def describe_federation(
    workload: Workload, engine: Engine, test: AnyExamples | None, validation: AnyExamples | float | None
) -> dict[str, Any]:
    """Clients, data and models by number, name and shape; the values of data are not read."""
    return {
        "clients": len(workload.ids),
        "the names of clients": short_hash(workload.ids),
        "training examples": sum(map(workload.size, workload.ids)),
        "test examples": None if test is None else len(test),
        "validation": validation if validation is None or isinstance(validation, float) else len(validation),
        "engine": _engine(engine),
        "memory format": workload.on(engine.device).memory_format,
        **_models(workload),
    }


def in_words(model: nn.Module) -> str:
    """A model in a few words: its class and its size."""
    return f"{type(model).__name__} ({sum(each.numel() for each in model.parameters()):,} parameters)"


def _engine(engine: Engine) -> str:
    name, device = kebab(type(engine).__name__), kind_of(engine.device)
    name = getattr(engine, "node", name)
    threads = "" if engine.threads == 1 else f" with {engine.threads} threads"
    if device != "cpu":
        return f"{'serial' if name == 'auto' else name} on {device}{threads}"
    if threads:
        return f"serial or pool{threads}"
    return "serial, pool or ray" if name in SAME_BITS else name


def _models(workload: Workload) -> dict[str, Any]:
    """The models' layers and shapes, and the values of all that the server does not send."""
    clients = {} if isinstance(workload.clients, Population) else workload.clients
    models = [client.model for client in clients.values() if client.model is not None]
    models += [] if workload.model is None else [workload.model]
    sharing, classes = workload.learner.sharing, Hasher()
    return {
        "model": short_hash(line for model in models for line in _layers(model, classes)),
        "the first values of what is not shared": short_hash(
            Hasher().hash(_not_shared(model, sharing)) for model in models
        ),
    }


def _layers(model: nn.Module, classes: Hasher) -> Iterator[str]:
    """The layers of a model, each with its class and plain settings, and the shapes of its tensors."""
    for name, module in model.named_modules():
        yield f"{name} {classes.hash(type(module))} {sorted(plain_settings(module).items())}"
    for name, value in model.state_dict().items():
        yield f"{name} {list(value.shape)} {value.dtype}"


def _not_shared(model: nn.Module, sharing: Sharing) -> Mapping[str, Tensor]:
    """The first values of what stays with a client or comes with the model: private or frozen layers."""
    tensors, layout = tensors_of(model), sharing.layout(model)
    if sharing.has_private_layers:
        return sharing.start(tensors, layout)
    shared = {entry.name for entry in layout.entries}
    return {name: value for name, value in tensors.items() if name not in shared}
