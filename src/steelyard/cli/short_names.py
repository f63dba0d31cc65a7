"""Names of recorded runs that are shown together."""

import re
from collections.abc import Sequence
from pathlib import Path


def short_names(runs: Sequence[Path]) -> list[str]:
    """The folders' names without the time and the changes that all have, or the full paths if some are equal.

    A name is time-spec+change+change-seed, such as 20261115-220936-fedavg+rounds=5+weighing=krum-s0.
    """
    parts = [_parts(path.resolve().name) for path in runs]
    shared = set.intersection(*(set(changes) for _, changes, _ in parts)) if len(runs) > 1 else set()
    short = [
        "+".join([spec, *(change for change in changes if change not in shared)]) + seed
        for spec, changes, seed in parts
    ]
    return short if len(set(short)) == len(runs) else [str(path) for path in runs]


def without_seed(name: str) -> str:
    """A name without the seed at its end."""
    spec, changes, _ = _parts(name)
    return "+".join([spec, *changes])


def _parts(folder: str) -> tuple[str, list[str], str]:
    """The spec, its changes and the seed ("-s0"), which some folders do not have."""
    name = re.sub(r"^\d{8}-\d{6}-", "", folder)
    found = re.search(r"-s-?\d+(-\d+)?$", name)
    seed = found.group() if found else ""
    spec, *changes = name.removesuffix(seed).split("+")
    return spec, changes, seed
