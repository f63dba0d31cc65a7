"""Callbacks of a run: they see every completed round with the server's state and model, and may stop it."""

from collections.abc import Callable, Iterable
from functools import cached_property

from torch import nn

from steelyard.errors import InputError
from steelyard.server.state import FederationState
from steelyard.types import Round

MEASURES = ("loss", "test_loss", "mse", "accuracy")
"""What is shown of a round."""


class RoundEvent:
    """What a callback is called with after a completed round."""

    round: Round
    """The record of the round: number, metrics, and a row for each client."""
    state: FederationState
    """The server after the round."""

    def __init__(
        self, round: Round, state: FederationState, make_model: Callable[[FederationState], nn.Module]
    ) -> None:
        self.round, self.state = round, state
        self.is_stopped = False
        self._make_model = make_model

    def __repr__(self) -> str:
        metrics = self.round.metrics
        shown = [f"{name} {metrics[name]:.4g}" for name in MEASURES if metrics.get(name) is not None]
        return f"RoundEvent({', '.join([f'round {self.round.number}', *shown])})"

    @cached_property
    def model(self) -> nn.Module:
        """What is shared, after the round: the whole model, or the head. It is a copy, made on first use."""
        return self._make_model(self.state)

    def stop(self) -> None:
        """End the run after this round. The result, and the recorded model, are those of this round."""
        self.is_stopped = True


Callback = Callable[[RoundEvent], object]
"""Called with every completed round, after the observers. An error in it ends the run."""


def check_callbacks(callbacks: object) -> tuple[Callback, ...]:
    """The callbacks that were given: one, several or none."""
    if callbacks is None:
        return ()
    given = tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
    for each in given:
        if not callable(each) or isinstance(each, type):
            raise InputError(f"callbacks must be functions or callable objects, not {each!r}.")
    return given


def call_all(callbacks: Iterable[Callback], event: RoundEvent) -> bool:
    """Call each callback, and say whether one stopped the run. An error says which callback it came from."""
    for callback in callbacks:
        try:
            callback(event)
        except Exception as error:
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            error.add_note(f"raised by the callback {name} after round {event.round.number}")
            raise
    return event.is_stopped
