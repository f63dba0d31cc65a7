"""A simulation in plain values, to notice that a run goes on with other data, models or another engine."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from steelyard.data.clients import Population
from steelyard.data.examples import AnyExamples
from steelyard.engines.base import Engine
from steelyard.engines.workload import Workload
from steelyard.texts import kebab

SAME_BITS = ("serial", "pool", "ray")
"""Engines that give the same bits."""


def describe_federation(
    workload: Workload, engine: Engine, test: AnyExamples | None, validation: AnyExamples | float | None
) -> dict[str, Any]:
    """Clients, data and models by number, name and shape; the values of data are not read."""
    return {
        "clients": len(workload.ids),
        "the names of clients": _hash(workload.ids),
        "training examples": sum(map(workload.size, workload.ids)),
        "test examples": None if test is None else len(test),
        "validation": validation if validation is None or isinstance(validation, float) else len(validation),
        "engine": _engine(engine),
        **_models(workload),
    }


def _engine(engine: Engine) -> str:
    name, device = kebab(type(engine).__name__), getattr(engine, "device", "cpu")
    return ", ".join(SAME_BITS) if name in SAME_BITS else name if device == "cpu" else f"{name} on {device}"


def _models(workload: Workload) -> dict[str, Any]:
    """The models' names and shapes. Where layers are private, their first values matter, too."""
    clients = {} if isinstance(workload.clients, Population) else workload.clients
    models = [client.model for client in clients.values() if client.model is not None]
    models += [] if workload.model is None else [workload.model]
    found: dict[str, Any] = {"model": _hash(line for model in models for line in _shapes(model))}
    if workload.has_private_layers:
        found["the first values of the models"] = _hash(line for model in models for line in _values(model))
    return found


def _shapes(model: nn.Module) -> list[str]:
    return [f"{name} {list(value.shape)} {value.dtype}" for name, value in model.state_dict().items()]


def _values(model: nn.Module) -> list[bytes]:
    tensors = model.state_dict().values()
    return [
        value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes() for value in tensors
    ]


def _hash(parts: Iterable[str | bytes]) -> str:
    """A short hash of texts or bytes in this order."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:12]
