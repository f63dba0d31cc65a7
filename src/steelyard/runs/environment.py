"""The versions and hardware that the numbers of a run may depend on."""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import steelyard

PACKAGES: Sequence[str] = ("torch", "numpy", "scikit-learn", "safetensors")


def environment() -> dict[str, Any]:
    """What a run records of where it ran."""
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "steelyard": steelyard.__version__,
        "packages": {name: version(name) for name in PACKAGES},
    }


def changes_since(path: Path) -> list[str]:
    """What differs from a recorded environment and can change the bits of a run, each in a few words."""
    try:
        before = that_matters(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, AttributeError):
        return [f"{path.name} cannot be read"]
    now = that_matters(environment())
    return [
        f"{name} was {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]
    ]


def that_matters(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Without the number of cores and the kernel, which change no bit."""
    names = ("steelyard", "python", "processor", "cpu_capability")
    return {**{name: recorded.get(name) for name in names}, **dict(recorded.get("packages", {}))}
