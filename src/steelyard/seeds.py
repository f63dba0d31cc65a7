"""Seeds derived from one seed and a key such as (round, client, purpose).

Each purpose has its own generator, so results depend neither on the order of draws nor on the number of
workers.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


def derive(seed: int, *key: str | int) -> int:
    """A 63-bit seed for one purpose; different keys give independent seeds."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *key: str | int) -> torch.Generator:
    """A fresh generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *key))


@contextmanager
def seeded(seed: int, *key: str | int) -> Iterator[None]:
    """Seed torch's global generators (initialisation, dropout) in this context, and restore them after it."""
    # Not torch.manual_seed: before CUDA is initialised, it stores a stack trace of every call.
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    state = torch.default_generator.get_state()
    with torch.random.fork_rng(devices) if devices else nullcontext():
        torch.default_generator.manual_seed(derive(seed, *key))
        if devices:
            torch.cuda.manual_seed_all(derive(seed, *key))
        try:
            yield
        finally:
            torch.default_generator.set_state(state)
