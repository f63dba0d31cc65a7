"""The process of a site that holds its data and model: it answers parcels that come through a pipe.

It stays as long as the site serves, so data are read once. It never speaks with the network: the process that
started it does. If it dies, it is started again and asked again.
"""

import signal
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from steelyard.errors import SteelyardError
from steelyard.flower.wire import Parcel, WireError, from_bytes, to_bytes

TRIES = 2
READY = "ready"


class SiteProcess:
    """A site in a process of its own."""

    def __init__(self, invitation: Path, home: Path, data: str | None, trust: bool, threads: int) -> None:
        self.arguments = (invitation, home, data, trust, threads)
        self.process: BaseProcess | None = None
        self.pipe: Connection[Any, Any] | None = None
        self._asked: Mapping[str, Any] | None = None
        """The header of the question that the process works on."""

    def start(self) -> None:
        """Start the process and wait until its data are there; what is wrong with them is an error."""
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, *self.arguments), daemon=True)
        self.process.start()
        theirs.close()
        self._asked = None
        try:
            kind, text = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise SteelyardError(f"the site's process ended: {self._ending()}.") from None
        if kind != READY:
            self.stop()
            raise SteelyardError(text)

    def answer(self, parcel: Parcel, wait: Callable[[], None]) -> Parcel | None:
        """The answer to a question; None if the process died of it twice. `wait` is called meanwhile.

        If `wait` raises an error, the process works on. Asked the same again, it gives that answer; asked
        something else, it finishes first, and the old answer is dropped.
        """
        for _ in range(TRIES):
            if self.process is None or not self.process.is_alive():
                self.start()
            assert self.pipe is not None
            try:
                if self._asked is not None and self._asked != parcel.header:
                    self._receive(wait)
                if self._asked is None:
                    for piece in to_bytes(parcel):
                        self.pipe.send_bytes(piece)
                    self._asked = parcel.header
                return self._receive(wait)
            except (EOFError, OSError):
                assert self.process is not None
                self.process.join()
        return None

    def _receive(self, wait: Callable[[], None]) -> Parcel:
        assert self.pipe is not None
        while not self.pipe.poll(1.0):
            wait()
        answer, self._asked = _receive(self.pipe), None
        return answer

    def _ending(self) -> str:
        code = self.process.exitcode if self.process is not None else None
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"code {code}"

    @property
    def ending(self) -> str:
        return f"its process ended twice while it worked ({self._ending()})"

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.pipe is not None:
            self.pipe.close()


def _receive(pipe: "Connection[Any, Any]") -> Parcel:
    count = int.from_bytes(pipe.recv_bytes(), "little")
    return from_bytes([b"", *(pipe.recv_bytes() for _ in range(count + 1))])


def _serve(
    pipe: "Connection[Any, Any]", invitation: Path, home: Path, data: str | None, trust: bool, threads: int
) -> None:
    import os

    import torch

    from steelyard.engines.orphans import end_with_parent
    from steelyard.flower.answering import Answering

    end_with_parent(os.getppid())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the process that started this one ends it
    torch.set_num_threads(threads)
    try:
        site = Answering(invitation, home, data, trust)
    except SteelyardError as error:
        pipe.send(("error", str(error)))
        return
    except Exception as error:  # the user's own function for the data
        pipe.send(("error", f"the data of the site cannot be loaded: {type(error).__name__}: {error}."))
        return
    pipe.send((READY, ""))
    while True:
        try:
            parcel = _receive(pipe)
        except EOFError:
            return
        except WireError:
            continue
        for piece in to_bytes(site.answer(parcel)):
            pipe.send_bytes(piece)
