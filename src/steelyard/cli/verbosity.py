"""`steelyard -v COMMAND`: what the library logs, on standard error."""

import logging
import sys
from typing import Annotated

import typer

LEVELS = (logging.INFO, logging.DEBUG)

Verbose = Annotated[
    int,
    typer.Option("-v", count=True, metavar="", show_default=False, help="Say what happens; -vv says more."),
]


class StderrHandler(logging.Handler):
    """Writes each message as one line without control characters.

    It looks up `sys.stderr` each time: a progress bar replaces it, and prints what is written above itself.
    """

    def emit(self, record: logging.LogRecord) -> None:
        from steelyard.texts import plain

        try:
            line = " ".join(plain(record.getMessage()).split())
            sys.stderr.write(f"{record.levelname.lower()}: {line}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def show_log(verbose: int, context: typer.Context) -> None:
    """Show the messages of steelyard until the command has ended."""
    if not verbose:
        return
    logger, handler = logging.getLogger("steelyard"), StderrHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(LEVELS[min(verbose, len(LEVELS)) - 1])

    def stop() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    context.call_on_close(stop)
