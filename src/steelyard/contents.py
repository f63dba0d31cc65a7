"""What an object is, as a short text that is the same in every process, to notice that it was changed.

Seen are plain values, tensors and arrays; of functions their code, defaults and the variables around them
(closures); of objects their class and attributes; of classes outside installed packages their code. Not seen
are global variables and functions that code uses, and what objects of installed packages keep to themselves.
"""

import enum
import functools
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steelyard.importing import is_installed

Part = str | bytes | memoryview
PLAIN = (str, int, float, complex, bytes, type(None), enum.Enum, Path, np.generic, torch.dtype, torch.device)
"""Types of values that their `repr` says."""
OF_EVERY_MODULE = frozenset(vars(nn.Module()))
SHOWN = 200  # characters of an object's settings


def short_hash(parts: Iterable[Part]) -> str:
    """A short hash of texts or bytes in this order."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()[:12]


def text_of(value: Any) -> str:
    """An object in words, with a hash of what the words do not say."""
    if isinstance(value, functools.partial):
        words = f"partial of {_name(value.func)}"
    elif isinstance(value, type) or hasattr(value, "__qualname__"):
        words = _name(value)
        if not hasattr(value, "__code__") and not is_own(value):  # its name says it all
            return words
    elif hasattr(value, "__dict__") and not isinstance(value, Tensor):
        settings = ", ".join(f"{name}={each!r}" for name, each in plain_settings(value).items())
        words = f"{type(value).__name__}({settings[:SHOWN]})"
    else:
        words = type(value).__name__ if isinstance(value, Tensor | np.ndarray) else _without_address(value)
    return f"{words} #{Hasher().hash(value)}"


def is_own(value: object) -> bool:
    """Whether a class or function, or the class of an object, is of no installed package."""
    kind = value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    return _is_own_module(str(getattr(kind, "__module__", "")).partition(".")[0])


def plain_settings(value: object) -> dict[str, Any]:
    """The public attributes of an object that are numbers, texts and the like, by name."""
    return {name: each for name, each in _attributes(value).items() if name[0] != "_" and _is_plain(each)}


class Hasher:
    """Hashes of objects; what several of them have in common is read once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}  # with the objects, so that no other gets their id

    def hash(self, value: Any) -> str:
        if isinstance(value, PLAIN):
            return short_hash([type(value).__name__, repr(value)])
        if id(value) not in self._known:
            self._known[id(value)] = value, "itself"  # what it says of itself, in a circle
            try:
                found = short_hash(self._parts(value))
            except Exception:  # code of the user's own may raise anything; the type is known
                found = short_hash([_name(type(value))])
            self._known[id(value)] = value, found
        return self._known[id(value)][1]

    def _parts(self, value: Any) -> Iterator[Part]:
        """What is hashed of a value that is not plain."""
        yield _name(type(value))
        if isinstance(value, Tensor):
            yield from _tensor(value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            yield from (f"{value.dtype} {value.shape}", np.ascontiguousarray(value).tobytes())
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, CodeType):
            yield from (value.co_code, " ".join(value.co_names), self.hash(value.co_consts))
        elif isinstance(value, MethodType):
            yield from (self.hash(value.__func__), self.hash(value.__self__))
        elif isinstance(value, functools.partial):
            yield from map(self.hash, (value.func, value.args, value.keywords))
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, Mapping):
            yield from sorted(self.hash(key) + self.hash(each) for key, each in value.items())
        elif isinstance(value, Set):
            yield from sorted(map(self.hash, value))
        elif isinstance(value, list | tuple | np.ndarray):
            yield from map(self.hash, value)
        elif hasattr(value, "__dict__"):
            yield from self._object(value)
        else:
            yield _without_address(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield self.hash(function.__code__)
        yield self.hash((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                yield self.hash(cell.cell_contents)
            except ValueError:  # it has no value yet
                yield ""

    def _class(self, kind: type) -> Iterator[str]:
        """The name of a class and, of those that are the user's, the code and plain values in it."""
        yield _name(kind)
        for each in filter(is_own, kind.__mro__):
            for name, member in sorted(vars(each).items()):
                found = _function_in(member)
                if found is not None or (name[:2] != "__" and _is_readable(member)):
                    yield from (name, self.hash(member if found is None else found))

    def _object(self, value: Any) -> Iterator[str]:
        """The class and attributes of an object; of other packages, only public ones that can be read."""
        yield self.hash(type(value))
        private = is_own(value) and not _is_metric(value)
        for name, each in sorted(_attributes(value).items()):
            if private or ((name[0] != "_" or name == "__wrapped__") and _is_readable(each)):
                yield from (name, self.hash(each))
        if isinstance(value, nn.Module):
            yield self.hash(dict(value.named_parameters(recurse=False)))
            yield self.hash(dict(value.named_buffers(recurse=False)))
            yield self.hash(dict(value.named_children()))


def _function_in(member: object) -> FunctionType | None:
    """The function that a member of a class is, or that a property or a class method calls."""
    inner = (getattr(member, name, None) for name in ("__func__", "fget", "func", "__wrapped__"))
    return next((each for each in (member, *inner) if isinstance(each, FunctionType)), None)


def _tensor(value: Tensor) -> Iterator[Part]:
    yield f"{value.dtype} {tuple(value.shape)}"
    if not value.is_meta:
        dense = value.detach() if value.layout is torch.strided else value.detach().to_dense()
        yield dense.cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _attributes(value: object) -> dict[str, Any]:
    """The attributes of an object, without those of every module, and without a metric's present state."""
    hidden = OF_EVERY_MODULE if isinstance(value, nn.Module) else ()
    states = vars(value)["_defaults"] if _is_metric(value) else ()
    return {name: each for name, each in vars(value).items() if name not in hidden and name not in states}


def _is_metric(value: object) -> bool:
    """Whether it is an object of torchmetrics, which changes when it is used."""
    return "_defaults" in vars(value) and "_reductions" in vars(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    return all(map(_is_plain, value)) if isinstance(value, list | tuple) else isinstance(value, PLAIN)


def _is_readable(value: object) -> bool:
    """Whether it is a value, a function or a class, or a container of such."""
    if isinstance(value, Mapping):
        return all(_is_readable(each) for each in value.values())
    if isinstance(value, list | tuple | Set):
        return all(map(_is_readable, value))
    kinds = (*PLAIN, Tensor, np.ndarray, FunctionType, MethodType, functools.partial, type)
    return isinstance(value, kinds)


def _name(value: Any) -> str:
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _name(type(value))


def _without_address(value: object) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))


@functools.cache
def _is_own_module(top: str) -> bool:
    """Whether a top-level module is neither Python's, steelyard's nor installed."""
    if top == "steelyard" or top in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(top), "__file__", None)
    return top == "__main__" or file is None or not is_installed(Path(file))
