"""The folder of a run: the names in it, the lock that its one writer holds, and how it is made."""

import errno
import fcntl
import itertools
import os
import re
import secrets
import shutil
import socket
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from steelyard.errors import InputError, SteelyardError
from steelyard.tensor_files import PARTIAL, sync

DATABASE = "record.sqlite"
MODEL = "model.safetensors"
BEST = "best.safetensors"
SPEC = "spec.toml"
ENVIRONMENT = "environment.json"
LOCK = "lock"
PRIVATE = "private"
"""The private states of the clients."""
STATE = re.compile(r"state-(\d+)\.safetensors")
KEPT_STATES = 2
HIDDEN = ".new-"
"""How the name of a folder begins until everything is in it that a run needs to be resumed."""


class TakenError(InputError):
    """The folder of a new run exists already."""


class Lock:
    """Held by the one writer of a run folder, a process or a thread; free when it ends, also by kill -9.

    The file names the process that holds the lock, or held it last.
    """

    def __init__(self, folder: Path) -> None:
        self.move(folder)
        try:
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise InputError(f"cannot write to {folder}: {error.strerror}.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise InputError(f"cannot lock {folder}: {error.strerror}; use a local disk.") from None
            raise InputError(
                f"{folder} is being written by {holder or 'another process'}; wait until it ends, or end it."
            ) from None
        found = os.fstat(descriptor)
        self._file: tuple[int, int] | None = (found.st_dev, found.st_ino)
        self.release = weakref.finalize(self, os.close, descriptor)
        try:
            self.check()
        except SteelyardError:
            self.release()
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        _held.add(self)

    def move(self, folder: Path) -> None:
        """The folder has this name from now on."""
        self.folder, self._path = folder, str(folder / LOCK)

    def check(self) -> None:
        """Raise an error if the folder was moved, deleted or replaced: what is there now is not ours."""
        try:
            found = os.stat(self._path)
            same = (found.st_dev, found.st_ino) == self._file
        except OSError:
            same = False
        if not same:
            raise SteelyardError(f"{self.folder} was moved, deleted or replaced while the run wrote to it.")


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _free_in_child() -> None:
    """A forked worker does not keep the lock of its parent."""
    for lock in list(_held):
        lock.release()
        lock._file = None


os.register_at_fork(after_in_child=_free_in_child)


def create(path: Path, fill: Callable[[Path], None]) -> Lock:
    """Make the folder of a run; `fill` puts into it what a run needs to be resumed.

    It has a hidden name until it is complete and on disk, so that a crash leaves a whole folder or none.
    """
    taken = TakenError(f"{path} exists and is not empty; choose another folder for the run.")
    path = path.resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir()) or path == Path.cwd()):
        raise taken
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        lock = _hidden_folder(path.parent)
    except OSError as error:
        raise InputError(f"cannot record runs in {path.parent}: {error.strerror or error}.") from None
    try:
        fill(lock.folder)
        for file in lock.folder.iterdir():
            sync(file)
        sync(lock.folder)
        os.rename(lock.folder, path)  # replaces an empty folder
        sync(path.parent)
    except BaseException as error:
        shutil.rmtree(lock.folder, ignore_errors=True)
        lock.release()
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise taken from None
        if isinstance(error, OSError):
            raise InputError(f"cannot record a run in {path}: {error.strerror or error}.") from None
        raise
    lock.move(path)
    return lock


def _hidden_folder(parent: Path) -> Lock:
    for attempt in itertools.count():
        folder = parent / f"{HIDDEN}{secrets.token_hex(6)}"
        folder.mkdir()
        try:
            return Lock(folder)
        except SteelyardError:  # another run took it for abandoned, before it was locked
            shutil.rmtree(folder, ignore_errors=True)
            if attempt == 9:
                raise
    raise AssertionError("unreachable")


def _remove_abandoned(parent: Path) -> None:
    """Remove what runs left that were killed before their folder was complete."""
    for folder in parent.glob(f"{HIDDEN}*"):
        with suppress(SteelyardError):
            lock = Lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


def free_paths(parent: Path, name: str) -> Iterator[Path]:
    """Paths for a new run, named by time so that names sort; the first one nearly always serves."""
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    for number in itertools.count(1):
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            yield path


def states_in(folder: Path) -> dict[int, Path]:
    """The saved states by round, oldest first."""
    matches = ((STATE.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def state_path(folder: Path, round: int) -> Path:
    return folder / f"state-{round}.safetensors"


def refuse_links(folder: Path) -> None:
    """A stranger's folder must not lead the run to write or delete elsewhere."""
    for path in (*folder.iterdir(), *(folder / PRIVATE).glob("*")):
        if path.is_symlink():
            raise InputError(f"{path} is a symbolic link; put the file itself there to resume the run.")


def remove_unfinished(folder: Path, round: int) -> None:
    """Remove states after a round, and files that were not written to their end."""
    for number, path in states_in(folder).items():
        if number > round:
            path.unlink()
    for path in list(folder.iterdir()):
        if path.name.endswith(PARTIAL) or path.name.startswith(".tmp"):
            path.unlink()
