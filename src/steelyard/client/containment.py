"""What a client's code does to the process ends with the client.

Data sets, models and objectives that users write run in the process of a site; in a simulation, one process
serves many clients. They may change settings of torch, the environment or the working directory, or raise
exceptions that would end the process. The changes are undone, and the exceptions are that client's failure.
"""

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, TextIO, TypeVar

import torch

from steelyard.client.interruptions import was_interrupted
from steelyard.seeds import alone
from steelyard.types import ClientId, Failure

T = TypeVar("T")


def run_contained(client: ClientId, stage: str, work: Callable[[], T], own_code: bool = True) -> T | Failure:
    """The result of a client's work, or its failure; the process is as it was before.

    Without code of the user's own, only exceptions are caught. With it, other threads wait for their turn.
    """
    with alone() if own_code else nullcontext():
        return _contained(client, stage, work, own_code)


def _contained(client: ClientId, stage: str, work: Callable[[], T], own_code: bool) -> T | Failure:
    process = os.getpid() if own_code else 0
    before = World() if own_code else None
    try:
        return work()
    except BaseException as error:
        if not isinstance(error, Exception) and (not own_code or was_interrupted()):
            raise
        return Failure(client, stage, describe(error))
    finally:
        if before is not None:
            if os.getpid() != process:  # the code has forked: only the first process goes on
                os._exit(0)
            before.restore()


class World:
    """Settings of the process that a client's code might change."""

    def __init__(self) -> None:
        self.values = [get() for get, _ in SETTINGS]

    def __enter__(self) -> None:
        """As a context, it is restored at the end."""

    def __exit__(self, *error: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Set what has changed since to what it was."""
        for (get, put), value in zip(SETTINGS, self.values, strict=True):
            if get() != value:
                put(value)


def _folder() -> str | None:
    """The working directory, or None if it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _change_folder(folder: str | None) -> None:
    with suppress(OSError):
        os.chdir(folder or "/")


def _set_environment(values: dict[Any, Any]) -> None:
    for name in [name for name in _environment() if name not in values]:
        os.unsetenv(name)
    for name, value in values.items():
        os.putenv(name, value)
    vars(os.environ)["_data"] = values


def _environment() -> dict[Any, Any]:
    copied: dict[Any, Any] = vars(os.environ)["_data"].copy()  # dict(os.environ) decodes all: 100 × slower
    return copied


def _set_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()
    warnings.filters.extend(filters)  # type: ignore[attr-defined]


def _streams() -> tuple[TextIO | None, TextIO | None, TextIO | None, bool]:
    closed = any(stream is not None and stream.closed for stream in (sys.stdout, sys.stderr))
    return sys.stdin, sys.stdout, sys.stderr, closed


def _set_streams(streams: tuple[TextIO | None, TextIO | None, TextIO | None, bool]) -> None:
    """The streams that were there; those that were closed are opened again on their file descriptors."""
    sys.stdin, sys.stdout, sys.stderr = streams[:3]
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is not None and stream.closed:
            with suppress(OSError):
                setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (lambda: torch.empty(0).device, torch.set_default_device),
    (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda flags: torch.use_deterministic_algorithms(flags[0], warn_only=flags[1]),
    ),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (_folder, _change_folder),
    (_environment, _set_environment),
    (lambda: list(warnings.filters), _set_filters),
    (_streams, _set_streams),
]
"""How each setting is read and set."""


def describe(error: BaseException) -> str:
    """The kind and message of an exception, also of one whose message cannot be read."""
    kind = type.__dict__["__name__"].__get__(type(error))
    try:
        return f"{kind}: {error}"
    except BaseException:  # its own code is at fault again
        return f"{kind}, without a message that can be read"
