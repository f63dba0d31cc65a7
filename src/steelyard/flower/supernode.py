"""Flower's SuperNode as a program that ends when it no longer works, so that `join` starts another.

Flower's own program stays, and looks alive, after its loop or its heartbeat has ended with an error. And what
was on its way while the connection broke may be lost without a word: the server would wait for that answer
until the deadline of the round. A SuperNode that starts anew is asked again.

This file is run by its path, and imports nothing of steelyard.
"""

import logging
import os
import signal
import sys
import threading

CONNECTED = "SuperNode ID"
LOSSES = (
    "Connection successful after",
    "Failed to send message",
    "Failed to receive message",
    "Run ID %s is not in `RUNNING` status. Ignoring message",
)
"""How the lines of Flower's log begin after which a question or an answer may be lost, or, for the last one,
a task is left whose question never becomes complete."""


class _Watch(logging.Handler):
    """Ends the process in Flower's orderly way, which tells the server, when something may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.is_connected = False

    def emit(self, record: logging.LogRecord) -> None:
        text = str(record.msg)
        if text.startswith(CONNECTED):
            self.is_connected = True
        elif self.is_connected and text.startswith(LOSSES):
            self.is_connected = False  # a second signal would end it at once
            print("Error: the connection was interrupted", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)


def _end(failed: threading.ExceptHookArgs) -> None:
    sys.excepthook(failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
    os._exit(1)


def main() -> None:
    from flwr.supernode.cli.flower_supernode import flower_supernode

    threading.excepthook = _end
    logging.getLogger("flwr").addHandler(_Watch())
    try:
        flower_supernode()
    finally:
        sys.stderr.flush()
        os._exit(1)  # threads that are left would keep the process


if __name__ == "__main__":
    main()
