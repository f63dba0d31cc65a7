"""The address of a live page: a port of 127.0.0.1 and a secret token, kept for each folder.

They are kept, so that after a restart the same URL works and open browsers connect again: outside of the
folder, which may be shared, in `$STEELYARD_CONFIG` or the system's folder for the state of programs.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import socket
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import platformdirs

from steelyard.errors import InputError
from steelyard.tensor_files import write_private

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 30_000)
"""New ports are from here: below those that systems give to outgoing connections."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Address:
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"


class Opened(NamedTuple):
    """An address and the socket that listens there."""

    address: Address
    socket: socket.socket
    note: str | None
    """What the user should know: that the usual port was taken."""


def open_address(folder: Path, port: int | None = None) -> Opened:
    """Listen at the address that is kept for a folder, or at a new one; `port` sets the port.

    A token belongs to one port: browsers that are still open send it to whatever program has that port now.
    """
    kept = _kept(folder)
    if port is not None:
        listening = _listen(port)
        if listening is None:
            raise InputError(f"port {port} is taken by another program; choose another one with --port.")
        address = kept if kept is not None and kept.port == port else Address(port, _new_token())
        _keep(folder, address)
        return Opened(address, listening, None)
    if kept is not None:
        listening = _listen(kept.port)
        if listening is not None:
            return Opened(kept, listening, None)
        address, listening = _new_address()
        note = f"port {kept.port}, where this page usually is, is taken; it is on port {address.port} now."
        return Opened(address, listening, note)
    address, listening = _new_address()
    _keep(folder, address)
    return Opened(address, listening, None)


def check_free_port() -> None:
    """Raise an error if a page could not listen at any port of this machine."""
    _new_address()[1].close()


def state_file(folder: Path) -> Path:
    """Where the address of a folder's page is kept."""
    parent = os.environ.get("STEELYARD_CONFIG") or platformdirs.user_state_dir("steelyard")
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return Path(parent).expanduser() / "pages" / f"{name}.json"


def _kept(folder: Path) -> Address | None:
    """The address that was kept; None if there is none, or if others could have read or written it."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        with open(os.open(state_file(folder), os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            private = found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
            values = json.load(file)
        if private and _TOKEN.fullmatch(values["token"]) and 0 < values["port"] < 65_536:
            return Address(int(values["port"]), values["token"])
    return None


def _keep(folder: Path, address: Address) -> None:
    with suppress(OSError):  # then the next start has another address
        write_private(state_file(folder), json.dumps(asdict(address)).encode())


def _new_token() -> str:
    return secrets.token_urlsafe(32)


def _new_address() -> tuple[Address, socket.socket]:
    for port in (*(secrets.choice(PORTS) for _ in range(50)), 0):
        if (listening := _listen(port)) is not None:
            return Address(listening.getsockname()[1], _new_token()), listening
    raise InputError("no port is free for the page; end other programs, or choose one with --port.")


def _listen(port: int) -> socket.socket | None:
    """A socket that listens on this machine only; None if the port is taken."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(64)
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return None
        reason = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise InputError(f"cannot serve a page at port {port}: {reason}.") from None
    return listening
