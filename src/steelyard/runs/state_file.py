"""The server's state on disk, from which a run is resumed."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from steelyard.errors import InputError
from steelyard.server.aggregation import ServerState
from steelyard.server.state import FederationState
from steelyard.tensor_files import Name, load_tensors, save_tensors
from steelyard.types import Message, Round

VERSION = 1
"""Of what a state holds."""
WITH_BEST = 2
"""The version of states that also hold the best model; an older steelyard would go on without it."""
_VECTORS = (
    *("mean", "variance", "velocity", "average-mean", "average-variance"),
    *("best-mean", "best-variance"),
)


def save_state(state: FederationState, path: Path) -> None:
    """Write a state so that a crash never leaves half a file."""
    server = state.server
    named: dict[Name, Tensor | None] = {
        ("mean",): server.message.mean,
        ("variance",): server.message.variance,
        ("velocity",): server.velocity,
        ("medians",): server.medians,
        ("average-mean",): None if server.average is None else server.average.mean,
        ("average-variance",): None if server.average is None else server.average.variance,
        ("best-mean",): None if state.best_model is None else state.best_model.mean,
        ("best-variance",): None if state.best_model is None else state.best_model.variance,
        **{("weighing", key): value for key, value in server.weighing.items()},
    }
    chosen = {"monitor": state.monitor, "best_round": state.best_round} if state.monitor else {}
    values = {
        "version": WITH_BEST if chosen else VERSION,
        "round": state.round,
        "best": state.best,
        "stale": state.stale,
        "pending": None if state.pending is None else vars(state.pending),  # `asdict` would copy each value
        **chosen,
    }
    save_tensors(path, {name: tensor for name, tensor in named.items() if tensor is not None}, values)


def load_state(path: Path) -> FederationState:
    """Read a state back."""
    tensors, values = load_tensors(path)
    if values.get("version") not in (VERSION, WITH_BEST):
        raise InputError(
            f"cannot resume from {path}: it was saved by another version of steelyard "
            f"(format {values.get('version')}, not {VERSION} or {WITH_BEST})."
        )
    try:
        return _state(tensors, values)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"cannot resume from {path}: it is not a state of steelyard ({error}).") from None


def _state(tensors: Mapping[Name, Tensor], values: Mapping[str, Any]) -> FederationState:
    shape = tensors[("mean",)].shape
    for name in _VECTORS:
        vector = tensors.get((name,))
        _require(vector is None or (vector.shape == shape and vector.dim() == 1), f"the shape of {name}")
        _require(vector is None or vector.is_floating_point(), f"the type of {name}")
    mean = tensors.get(("average-mean",))
    server = ServerState(
        Message(tensors[("mean",)], tensors.get(("variance",))),
        {name[1]: tensor for name, tensor in tensors.items() if len(name) == 2 and name[0] == "weighing"},
        tensors.get(("velocity",)),
        None if mean is None else Message(mean, tensors.get(("average-variance",))),
        tensors.get(("medians",)),
    )
    number, best, stale = values["round"], float(values["best"]), values["stale"]
    _require(type(number) is int and number >= 0, "round")
    _require(type(stale) is int and stale >= 0, "stale")
    _require(not math.isnan(best), "best")
    has_best = values["version"] == WITH_BEST
    monitor, best_round = (values["monitor"], values["best_round"]) if has_best else ("", 0)
    _require(isinstance(monitor, str) and bool(monitor) == has_best, "monitor")
    _require(type(best_round) is int and 0 <= best_round <= number, "best_round")
    mean = tensors.get(("best-mean",))
    _require((mean is not None) == (best_round > 0), "best_round")
    model = None if mean is None else Message(mean, tensors.get(("best-variance",)))
    pending = _pending(values["pending"], number)
    return FederationState(number, server, pending, best, stale, monitor, best_round, model)


def _pending(values: Any, number: int) -> Round | None:
    if values is None:
        return None
    metrics, seconds, clients = values["metrics"], values["seconds"], values["clients"]
    _require(values["number"] == number, "pending.number")
    for name, numbers in (("metrics", metrics), ("seconds", seconds)):
        _require(all(isinstance(value, float | int) for value in numbers.values()), f"pending.{name}")
    for row in clients:
        _require(isinstance(row["client"], str), "pending.clients")
        plain = all(value is None or isinstance(value, float | int | str) for value in row.values())
        _require(plain, "pending.clients")
    return Round(number, metrics, tuple(clients), seconds)


def _require(valid: bool, what: str) -> None:
    if not valid:
        raise ValueError(f"{what} is wrong")
