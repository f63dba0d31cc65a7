"""Is an exception such as KeyboardInterrupt a signal to stop, or was it raised by a client's own code?"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)


class _Signals:
    """Signals to stop that have arrived while they are noted."""

    is_noted = False
    has_arrived = False


_signals = _Signals()  # one for the process, as signal handlers are


@contextmanager
def signals_noted() -> Iterator[None]:
    """Note signals to stop, so that an exception of a client's own is not taken for one of them.

    The handlers do what they did before. Other threads than the main one never see signals.
    """
    if _signals.is_noted or threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    _signals.is_noted, _signals.has_arrived = True, False
    for number, handler in handlers.items():
        signal.signal(number, _noting(handler))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _signals.is_noted = False
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _noting(handler: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
    def noted(number: int, frame: FrameType | None) -> Any:
        _signals.has_arrived = True
        return handler(number, frame)

    return noted


def was_interrupted() -> bool:
    """Whether an exception such as KeyboardInterrupt may come from a signal, not from a client's code."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and (_signals.has_arrived or not _signals.is_noted)
