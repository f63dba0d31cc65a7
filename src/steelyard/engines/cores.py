"""How many cores and workers a process may use."""

import os

from steelyard.errors import InputError

CORES_VARIABLE = "STEELYARD_CORES"
"""In the environment: the cores that a process may use, where several processes share a machine."""


def cores() -> int:
    """The cores that this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, int(os.environ.get(CORES_VARIABLE, available)))


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}.")
