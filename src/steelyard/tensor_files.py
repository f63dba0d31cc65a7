"""Named tensors and a few plain values in one safetensors file. A crash never leaves half a file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from steelyard.errors import InputError

Name = tuple[str, ...]
"""A path of strings; client ids in it may hold any character."""


def save_tensors(path: Path, tensors: Mapping[Name, Tensor], values: Mapping[str, Any] | None = None) -> None:
    """Write tensors by name, and `values` that JSON can hold."""
    numbered = {str(place): tensor.contiguous().clone() for place, tensor in enumerate(tensors.values())}
    header = {"names": list(tensors), "values": dict(values or {})}
    partial = path.with_name(f"{path.name}.partial")
    save_file(numbered, partial, metadata={"steelyard": json.dumps(header)})
    os.replace(partial, path)


def load_tensors(path: Path) -> tuple[dict[Name, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote."""
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["steelyard"])
            names = [tuple(map(str, name)) for name in header["names"]]
            tensors = {name: file.get_tensor(str(place)) for place, name in enumerate(names)}
            return tensors, dict(header["values"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}.") from None
