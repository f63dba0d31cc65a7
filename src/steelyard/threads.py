"""Work on one thread, or in parts on several: results depend on neither the number of threads nor cores.

The last bits of torch's sums depend on how many threads torch uses. So everything runs with one thread of
torch (`one_thread`). What has enough work for several cores is divided into parts, by its shape alone, and
each part runs on one thread (`in_parts`). Only where a user asks for it, as with `engine.threads`, torch uses
several (`with_threads`), and the bits belong to their number.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from steelyard.errors import InputError
from steelyard.seeds import Depth, alone

P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part")

CORES_VARIABLE = "STEELYARD_CORES"
"""In the environment: the cores that a process may use, where several processes share a machine."""


def cores() -> int:
    """The cores that this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, int(os.environ.get(CORES_VARIABLE, available)))


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}.")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: sums depend in their last bits on the number of threads.

    Each Python thread has its own number; a new one begins with the number that was set last. So a thread
    that begins while another is in such a context finds 1, and takes the number before that as its own.
    """
    with alone():
        before = _single.enter()
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with alone():
            _single.leave()
            torch.set_num_threads(before)


def check_threads(threads: int) -> None:
    if threads < 1:
        raise InputError(f"threads must be at least 1, not {threads}.")


def with_threads(number: int, work: Callable[[], T]) -> T:
    """What `work` returns; torch uses so many threads for it.

    If these are several, the work is done in a thread of Python that lives as long as the process, because
    torch's threads belong to the one that started them. A forked process makes its own: it would wait forever
    for those of the process that was forked, or for a lock that one of them held while it ended.

    Meanwhile, other threads of this process wait before they seed generators or change the number of threads.
    Ctrl-C ends the work after the operation of torch that is running.
    """
    if number == 1:
        return work()
    grad, places = torch.is_grad_enabled(), list[int]()

    def do() -> T:
        places.append(threading.get_ident())
        with alone(), torch.set_grad_enabled(grad):
            before = torch.get_num_threads()
            torch.set_num_threads(number)
            try:
                return work()
            finally:
                torch.set_num_threads(before)

    if number not in _several:
        _several[number] = ThreadPoolExecutor(1)
    done = _several[number].submit(do)
    try:
        return done.result()
    except BaseException as error:
        if not done.done():  # it is not the work that failed
            del _several[number]
            if not done.cancel():
                _raise_in(places, type(error))
                wait([done])
        raise


def _raise_in(threads: Sequence[int], kind: type[BaseException]) -> None:
    """Raise an exception in other threads, between two steps of their code in Python."""
    for thread in threads:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The function in `one_thread`. Torch then starts no threads, after which a fork might hang."""

    @wraps(function)
    def restricted(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_thread():
            return function(*args, **kwargs)

    return restricted


def in_parts(function: Callable[[Part], T], parts: Sequence[Part], workers: int | None = None) -> list[T]:
    """[function(part) for part in parts], with several parts at the same time.

    Each part runs on one thread of torch, so the results have the same bits for any number of `workers` (by
    default, the cores of this process), as long as the parts depend only on the shapes of the data and the
    caller combines the results in their order. The first part that fails, in order, raises its exception.

    Torch releases Python's lock while it computes, so parts should consist of few, large operations. Threads
    end before this returns: nothing is left that a fork could break. Inside a part, `in_parts` runs serially.
    """
    count = min(len(parts), 1 if _inside.value else workers or cores())
    if count <= 1:
        with one_thread():
            return [function(part) for part in parts]
    results: list[T | None] = [None] * len(parts)
    failures: dict[int, BaseException] = {}
    todo, grad, inference = (
        iter(range(len(parts))),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )

    def work() -> None:
        number, _inside.value = -1, _inside.value + 1
        try:
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                for number in todo:  # next() of a range is atomic: each number goes to one thread
                    if failures:
                        break
                    results[number] = function(parts[number])
        except BaseException as error:
            failures[number] = error
        finally:
            _inside.value -= 1

    with one_thread():  # threads that begin in here begin with one thread of torch
        threads = [threading.Thread(target=work, daemon=True) for _ in range(count - 1)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[min(failures)]
    return results  # type: ignore[return-value]  # every part is done


class _Single:
    """The Python threads that are in a context of `one_thread`."""

    def __init__(self) -> None:
        self.threads, self.usual, self.depth = 0, 1, Depth()

    def enter(self) -> int:
        """The number of threads to restore."""
        number = torch.get_num_threads()
        if not self.depth.value:
            self.usual = number = self.usual if self.threads else number
            self.threads += 1
        self.depth.value += 1
        return number

    def leave(self) -> None:
        self.depth.value -= 1
        self.threads -= not self.depth.value

    def after_fork(self) -> None:
        self.threads = int(self.depth.value > 0)


_single, _inside = _Single(), Depth()
_several: dict[int, ThreadPoolExecutor] = {}
"""The thread of Python in which torch has so many threads, for each number."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_single.after_fork)
    os.register_at_fork(after_in_child=_several.clear)
