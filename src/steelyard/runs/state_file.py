"""The server's state on disk, from which a run is resumed."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from steelyard.errors import InputError
from steelyard.server.aggregation import ServerState
from steelyard.server.state import FederationState
from steelyard.tensor_files import Name, load_tensors, save_tensors
from steelyard.types import Message, Round


def save_state(state: FederationState, path: Path) -> None:
    """Write a state so that a crash never leaves half a file."""
    server = state.server
    named: dict[Name, Tensor | None] = {
        ("mean",): server.message.mean,
        ("variance",): server.message.variance,
        ("velocity",): server.velocity,
        ("lengths",): server.lengths,
        ("average-mean",): None if server.average is None else server.average.mean,
        ("average-variance",): None if server.average is None else server.average.variance,
        **{("weighing", key): value for key, value in server.weighing.items()},
    }
    values = {
        "round": state.round,
        "best": state.best,
        "stale": state.stale,
        "pending": None if state.pending is None else asdict(state.pending),
    }
    save_tensors(path, {name: tensor for name, tensor in named.items() if tensor is not None}, values)


def load_state(path: Path) -> FederationState:
    """Read a state back."""
    tensors, values = load_tensors(path)
    weighing = {name[1]: tensor for name, tensor in tensors.items() if name[0] == "weighing"}
    try:
        mean = tensors.get(("average-mean",))
        average = None if mean is None else Message(mean, tensors.get(("average-variance",)))
        message = Message(tensors[("mean",)], tensors.get(("variance",)))
        server = ServerState(
            message, weighing, tensors.get(("velocity",)), average, tensors.get(("lengths",))
        )
        pending, best, stale = _round(values["pending"]), float(values["best"]), int(values["stale"])
        return FederationState(int(values["round"]), server, pending, best, stale)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"cannot resume from {path}: it is not a state of steelyard ({error}).") from None


def _round(values: Any) -> Round | None:
    if values is None:
        return None
    return Round(values["number"], values["metrics"], tuple(values["clients"]), values["seconds"])
