"""Whether a federation can go on from a saved state."""

from pathlib import Path

from steelyard.errors import InputError
from steelyard.runs.folder import PRIVATE
from steelyard.server.state import FederationState
from steelyard.sharing import Sharing
from steelyard.types import Message


def check_model(state: FederationState, shared: Message, where: str) -> None:
    """Refuse a state of another model; `shared` is what this one sends."""
    found = state.server.message
    if found.mean.shape != shared.mean.shape or found.slots != shared.slots:
        raise InputError(f"the state after round {state.round} in {where} belongs to another model.")


def check_state(state: FederationState, shared: Message, sharing: Sharing, rounds: int, run: Path) -> None:
    """Refuse a state in the folder of a run that a federation with so many rounds cannot go on from."""
    check_model(state, shared, str(run))
    if state.round > rounds:
        raise InputError(f"the state in {run} is after round {state.round}, but the run has {rounds} rounds.")
    if state.round and sharing.has_private_layers and not (run / PRIVATE).is_dir():
        raise InputError(
            f"{run} has no folder {PRIVATE!r} with the private layers of its clients; restore it from a "
            "copy, or run the spec again."
        )


def check_no_private_layers(sharing: Sharing) -> None:
    """Refuse to go on from a state alone, where clients have private layers that are not part of it."""
    if sharing.has_private_layers:
        raise InputError(
            "the state has only what is shared, not the private layers of the clients; go on with "
            "`federation.resume(result, rounds=...)`, or with the folder of the run."
        )
