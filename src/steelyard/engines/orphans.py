"""A process that ends when its parent process does, whatever it is doing."""

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress

PR_SET_PDEATHSIG = 1  # of Linux' prctl
CHECK_SECONDS = 1.0


def end_with_parent(parent: int) -> None:
    """End this process as soon as `parent`, the process that started it, is gone.

    Linux does it at once, also while the process hangs in compiled code or is stopped. Elsewhere a thread
    looks every second.
    """
    if not (sys.platform == "linux" and _ask_kernel()):
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it was gone before
        os._exit(1)


def _ask_kernel() -> bool:
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)
    return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(CHECK_SECONDS)
    os._exit(1)
