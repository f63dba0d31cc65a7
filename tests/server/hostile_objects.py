"""Objects that a client could send to disturb the program that reads them."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steelyard.sites import Answer
from steelyard.types import Message, Reply


class Raising:
    """Every look at it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")

    def __call__(self, *args: Any) -> Any:
        raise RuntimeError("no")

    __eq__ = __str__ = __repr__ = __float__ = __int__ = __len__ = __iter__ = __bool__ = __abs__ = __call__  # type: ignore[assignment]
    __index__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = __format__ = __call__  # type: ignore[assignment]

    def __hash__(self) -> int:
        return hash("loss")


class Exiting(Raising):
    """Every look at it ends the program."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(3)


class RudeName(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(3)


class Rude(metaclass=RudeName):
    pass


class Text(str):
    """Equal to every text."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Odd(Tensor):
    """A tensor on which every operation raises."""

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no operation")


class Whole(int):
    def __le__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class OwnReply(Reply):
    @property
    def message(self) -> Message:  # type: ignore[override]
        raise RuntimeError("no message")


class OwnMessage(Message):
    pass


class OwnAnswer(Answer):
    pass


def named_tuple(kind: Any, *values: Any) -> Any:
    return tuple.__new__(kind, values)


def hollow(kind: Any) -> Any:
    return object.__new__(kind)


def freed(keep: int) -> Callable[[Tensor], Tensor]:
    def make(mean: Tensor) -> Tensor:
        mean = mean.clone()
        mean.untyped_storage().resize_(keep)
        return mean

    return make


def overridden(mean: Tensor) -> Tensor:
    mean = mean.clone()
    for name in ("data_ptr", "stride", "detach", "as_strided", "numel", "storage_offset", "element_size"):
        setattr(mean, name, Raising())
    return mean


def quantised(mean: Tensor) -> Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(mean, 0.1, 0, torch.qint8)


def leaked(mean: Tensor) -> Tensor:
    """A tensor of a `vmap` that has ended."""
    kept: list[Tensor] = []
    torch.vmap(lambda row: (kept.append(row), row)[1])(mean.repeat(2, 1))
    return kept[0]


def with_value(index: int, value: float) -> Callable[[Tensor], Tensor]:
    return lambda mean: mean.index_fill(0, torch.tensor([index]), value)
