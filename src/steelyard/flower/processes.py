"""The programs that a deployment starts: each ends with the process that started it, and logs to a file."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from steelyard.errors import InputError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Flower neither calls its vendor nor installs anything."""
STOP_SECONDS = 5.0
MAX_LOG = 20 << 20  # bytes, after which a log begins anew
_LAUNCH = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(sys.argv[2]), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Child:
    """A program that is started again if it ends, and that ends with this process, also by kill -9."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
        end: signal.Signals = signal.SIGKILL,
    ) -> None:
        """`end` is the signal that the program gets when this process is gone; one that has processes of its
        own must get the chance to end them."""
        self.name, self.command, self.log = name, [str(word) for word in command], log
        self.env, self.end = {**os.environ, **QUIET, **(env or {})}, end
        self.process: subprocess.Popen[bytes] | None = None
        self.started, self._begin = 0.0, 0

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.is_file() and self.log.stat().st_size > MAX_LOG:
            self.log.replace(self.log.with_suffix(".old.log"))
        launch = [sys.executable, "-I", "-c", _LAUNCH, str(os.getpid()), str(int(self.end)), *self.command]
        with self.log.open("ab") as file:
            self._begin = file.tell()
            self.process = subprocess.Popen(
                launch,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=self.env,
                start_new_session=True,
            )
        self.started = time.monotonic()

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def ending(self) -> str:
        """How it ended."""
        code = None if self.process is None else self.process.poll()
        return "it was not started" if code is None else f"signal {-code}" if code < 0 else f"code {code}"

    def said(self) -> str:
        """The end of what the program has written since it was started."""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._begin, self.log.stat().st_size - 8000))
            return file.read().decode("utf-8", "replace")
        return ""

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "Child":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def flower_program(name: str) -> str:
    """The path of one of Flower's commands, from the environment that this Python runs in."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise InputError(f"{name} is not installed: pip install 'steelyard[flower]'.")
    return found


def free_port() -> int:
    """A free port on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
