"""A temporary folder that does not stay behind, also when its process is killed."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "steelyard-"
LOCK = "in-use.lock"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, removed in the end. Folders that killed processes left behind are removed first."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        with (folder / LOCK).open("w") as lock:  # the lock ends with the process, however it ends
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders with a lock that no process holds."""
    for path in parent.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
