"""Seeds derived from one seed and a key such as (round, client, purpose).

Each purpose has its own generator, so results depend neither on the order of draws nor on the number of
workers. The global generators belong to the whole process: threads take turns to use them.
"""

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch


def derive(seed: int, *key: str | int) -> int:
    """A 63-bit seed for one purpose; different keys give independent seeds."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *key: str | int) -> torch.Generator:
    """A fresh generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *key))


@contextmanager
def seeded(
    seed: int, *key: str | int, own_code: bool = True, device: torch.device | None = None
) -> Iterator[None]:
    """Seed the global generators of torch, numpy and `random` in this context, and restore them after it.

    That of a `device` other than the CPU is seeded alike.

    Other threads wait before they seed them. A generator function that yields in this context must be closed
    by the thread that called it.

    The code of torch and steelyard draws from torch's generators alone: where no other code runs,
    `own_code=False` leaves numpy and `random` as they are, which saves half of the time.
    """
    # Not torch.manual_seed: before CUDA is initialised, it stores a stack trace of every call.
    number = derive(seed, *key)
    with alone():
        state = torch.default_generator.get_state()
        others = _others.begin(number) if own_code else None
        with nullcontext() if device is None or device.type == "cpu" else _seeded_on(device, number):
            torch.default_generator.manual_seed(number)
            try:
                yield
            finally:
                torch.default_generator.set_state(state)
                if others is not None:
                    _set_others(others)


@contextmanager
def _seeded_on(device: torch.device, number: int) -> Iterator[None]:
    """Seed the generator that a device has beside that of the CPU, and restore it after this context."""
    module = torch.get_device_module(device)
    state = module.get_rng_state(device)
    module.set_rng_state(torch.Generator(device).manual_seed(number).get_state(), device)
    try:
        yield
    finally:
        module.set_rng_state(state, device)


def alone() -> AbstractContextManager[Any]:
    """A context in which a thread changes what belongs to the whole process: other threads wait for it."""
    return _others.lock


@contextmanager
def others_restored() -> Iterator[None]:
    """Restore the generators of numpy and `random` at the end of this context, once.

    That takes longer than to seed them. Inside, `seeded` leaves it to this context. Where contexts of several
    threads overlap, the last one to end restores them.
    """
    _others.enter()
    try:
        yield
    finally:
        _others.leave()


class Draws:
    """The global generators as one client sees them: each use goes on where the last one ended."""

    def __init__(self, seed: int, *key: str | int) -> None:
        self.seed, self.key = seed, key
        self.states: tuple[Any, ...] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with seeded(self.seed, *self.key):
            if self.states is not None:
                torch.default_generator.set_state(self.states[0])
                _set_others(self.states[1:])
            yield
            self.states = (torch.default_generator.get_state(), *_get_others())


def digest_of_others() -> bytes:
    """Changes when code draws from numpy's or Python's generator."""
    (_, words, *rest), own = _get_others()
    return hashlib.blake2b(words.tobytes() + repr((rest, own)).encode()).digest()


class Depth(threading.local):
    """How many contexts of one kind the current thread is in."""

    value = 0


class _Others:
    """Who restores the generators of numpy and `random`: each `seeded`, or a context around many.

    Such contexts of several threads may overlap; the last one to end restores what the first one found.
    """

    states: tuple[Any, ...] | None

    def __init__(self) -> None:
        self.lock, self.depth = threading.RLock(), Depth()
        self.threads, self.states = 0, None

    def begin(self, number: int) -> tuple[Any, ...] | None:
        """Seed both; returns what the caller must restore, if it must."""
        states = None
        if not self.depth.value:
            states = _get_others()
        elif self.states is None:
            self.states = _get_others()
        np.random.seed(number & 0xFFFFFFFF)
        random.seed(number)
        return states

    def enter(self) -> None:
        with self.lock:
            self.threads += not self.depth.value
            self.depth.value += 1

    def leave(self) -> None:
        with self.lock:
            self.depth.value -= 1
            self.threads -= not self.depth.value
            if not self.threads and self.states is not None:
                _set_others(self.states)
                self.states = None

    def after_fork(self) -> None:
        """In a forked process there is only the thread that forked: it waits for no other."""
        self.lock, self.threads = threading.RLock(), int(self.depth.value > 0)
        if not self.threads:
            self.states = None


_others = _Others()  # one for the process, as the generators are
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_others.after_fork)


def _get_others() -> tuple[Any, ...]:
    return np.random.get_state(), random.getstate()


def _set_others(states: tuple[Any, ...]) -> None:
    np.random.set_state(states[0])
    random.setstate(states[1])
