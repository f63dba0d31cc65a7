"""Seeds derived from one seed and a key such as (round, client, purpose).

Each purpose has its own generator, so results depend neither on the order of draws nor on the number of
workers.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
def seeded(seed: int, *key: str | int, own_code: bool = True) -> Iterator[None]:
    """Seed the global generators of torch, numpy and `random` in this context, and restore them after it.

    The code of torch and steelyard draws from torch's generators alone: where no other code runs,
    `own_code=False` leaves numpy and `random` as they are, which saves half of the time.
    """
    # Not torch.manual_seed: before CUDA is initialised, it stores a stack trace of every call.
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    number, state = derive(seed, *key), torch.default_generator.get_state()
    others = _others.begin(number) if own_code else None
    with torch.random.fork_rng(devices) if devices else nullcontext():
        torch.default_generator.manual_seed(number)
        if devices:
            torch.cuda.manual_seed_all(number)
        try:
            yield
        finally:
            torch.default_generator.set_state(state)
            if others is not None:
                _set_others(others)


@contextmanager
def others_restored() -> Iterator[None]:
    """Restore the generators of numpy and `random` at the end of this context, once.

    That takes longer than to seed them. Inside, `seeded` leaves it to this context.
    """
    outermost = _others.enter()
    try:
        yield
    finally:
        if outermost:
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


class _Others:
    """Who restores the generators of numpy and `random`: each `seeded`, or a context around many."""

    def __init__(self) -> None:
        self.is_shared, self.states = False, None

    states: tuple[Any, ...] | None

    def begin(self, number: int) -> tuple[Any, ...] | None:
        """Seed both; returns what the caller must restore, if it must."""
        states = None
        if not self.is_shared:
            states = _get_others()
        elif self.states is None:
            self.states = _get_others()
        np.random.seed(number & 0xFFFFFFFF)
        random.seed(number)
        return states

    def enter(self) -> bool:
        outermost, self.is_shared = not self.is_shared, True
        return outermost

    def leave(self) -> None:
        states, self.is_shared, self.states = self.states, False, None
        if states is not None:
            _set_others(states)


_others = _Others()  # one for the process, as the generators are


def _get_others() -> tuple[Any, ...]:
    return np.random.get_state(), random.getstate()


def _set_others(states: tuple[Any, ...]) -> None:
    np.random.set_state(states[0])
    random.setstate(states[1])
