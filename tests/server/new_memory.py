"""Counts the memory that operations of torch take for their results."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class NewMemory(TorchDispatchMode):
    """A context that notes how many bytes each new result takes; views and results in place take none."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_start(each) for each in tree_leaves((args, kwargs or {})) if isinstance(each, Tensor)}
        found = function(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, Tensor) and _start(each) not in given:
                self.taken.append((str(function), each.untyped_storage().nbytes()))
        return found

    def at_least(self, size: int) -> list[str]:
        """The operations that took so many bytes."""
        return [name for name, taken in self.taken if taken >= size]


def _start(tensor: Tensor) -> int:
    return torch.Tensor.untyped_storage(tensor).data_ptr()
