"""What one round hands to the next, and its form on disk: named tensors and a few numbers, never pickle."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from steelyard.client.private_state import StateFiles
from steelyard.errors import InputError
from steelyard.server.aggregation import ServerState
from steelyard.types import ClientId, Message, State


@dataclass(frozen=True, eq=False)
class FederationState:
    """Everything that one round hands to the next."""

    round: int
    server: ServerState
    clients: Mapping[ClientId, State] = field(default_factory=dict)
    """What stays with each client between its rounds; it is never sent."""
    best: float = float("-inf")
    stale: int = 0
    """Evaluations since the best one."""


def save_state(state: FederationState, path: Path) -> None:
    """Write a state so that a crash never leaves half a file."""
    named: dict[tuple[str, ...], Tensor | None] = {
        ("mean",): state.server.message.mean,
        ("variance",): state.server.message.variance,
        ("velocity",): state.server.velocity,
        ("lengths",): state.server.lengths,
        **_average(state.server.average),
        **{("weighing", key): value for key, value in state.server.weighing.items()},
    }
    shelf = state.clients if isinstance(state.clients, StateFiles) else None
    if shelf is None:
        named |= {
            ("client", who, key): value for who, kept in state.clients.items() for key, value in kept.items()
        }
    kept = {place: value for place, value in named.items() if value is not None}
    tensors = {str(number): value.contiguous().clone() for number, value in enumerate(kept.values())}
    numbers: dict[str, Any] = {
        "round": state.round,
        "best": state.best,
        "stale": state.stale,
        "places": list(kept),
    }
    numbers |= {} if shelf is None else {"shelf": shelf.folder.name, "files": dict(shelf.files)}
    partial = path.with_name(f"{path.name}.partial")
    save_file(tensors, partial, metadata={"state": json.dumps(numbers)})
    os.replace(partial, path)
    if shelf is not None:
        shelf.prune()


def load_state(path: Path) -> FederationState:
    """Read a state back."""
    try:
        with safe_open(path, "pt") as file:
            numbers = json.loads(file.metadata()["state"])
            values = [file.get_tensor(str(number)) for number in range(len(numbers["places"]))]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"cannot go on from {path}: {error}.") from None
    top: dict[str, Tensor] = {}
    weighing: dict[str, Tensor] = {}
    clients: dict[ClientId, dict[str, Tensor]] = {}
    for place, value in zip(numbers["places"], values, strict=True):
        if place[0] == "weighing":
            weighing[place[1]] = value
        elif place[0] == "client":
            clients.setdefault(place[1], {})[place[2]] = value
        else:
            top[place[0]] = value
    mean = top.get("average-mean")
    average = None if mean is None else Message(mean, top.get("average-variance"))
    message = Message(top["mean"], top.get("variance"))
    server = ServerState(message, weighing, top.get("velocity"), average, top.get("lengths"))
    kept = StateFiles(path.parent / numbers["shelf"], numbers["files"]) if "shelf" in numbers else clients
    return FederationState(numbers["round"], server, kept, numbers["best"], numbers["stale"])


def _average(message: Message | None) -> dict[tuple[str, ...], Tensor | None]:
    parts = {} if message is None else message._asdict()
    return {(f"average-{slot}",): value for slot, value in parts.items()}
