"""Ctrl-C and SIGTERM on the command line: the first ends the run in order, the second at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CONTINUES = "what is finished is recorded, and the same command continues."


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM."""

    def __init__(self, number: int, message: str = "interrupted.") -> None:
        super().__init__(message)
        self.number = number


@contextmanager
def interruptions() -> Iterator[None]:
    """Turn the first signal into an exception; a second one ends the process at once.

    Signals that are ignored (as under nohup) stay so. Outside of the main thread, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in SIGNALS}
    before = {each: handler for each, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for each in before:
            signal.signal(each, _interrupt)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def explained(interrupt: KeyboardInterrupt, hint: str) -> KeyboardInterrupt:
    """The same interruption, with what the user can do next."""
    return Interrupted(getattr(interrupt, "number", signal.SIGINT), f"interrupted; {hint}")


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + int(getattr(interrupt, "number", signal.SIGINT))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    for each in SIGNALS:
        if signal.getsignal(each) is _interrupt:
            signal.signal(each, signal.SIG_DFL)
    raise Interrupted(number)
