"""A device of torch that is not there: "pretend", whose tensors are held in the memory of the CPU.

As on a GPU, operations that mix its tensors with those of the CPU fail, but for copies. It has a generator of
its own. It counts what is copied to it and from it. To register it changes the whole process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
NAME = "pretend"
COPIES = {aten.copy_.default, aten._foreach_copy_.default}
"""They take tensors of both kinds."""
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
"""They take indices on the CPU."""

copied: Counter[str] = Counter()
"""Elements that were copied to the device and from it, and how many copies these were."""


class Module:
    """What torch calls `torch.pretend`."""

    generator = torch.Generator().manual_seed(12345)

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def device_count(self) -> int:
        return 1

    def get_rng_state(self, device: Any = None) -> Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        self.generator.set_state(state)


class Pretend(Tensor):
    """A tensor on the device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Pretend":
        made: Pretend = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Pretend({self.held})"

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        settings = dict(kwargs or {})
        if func is aten._to_copy.default:
            return _to_copy(args[0], settings)
        if func in COPIES:
            _count(args)
        else:
            _check(func, args, settings)
        if settings.get("device") is not None:
            settings["device"] = "cpu"
        given, named = tree_map_only(Pretend, lambda each: each.held, (tuple(args), settings))
        with _drawing(func):
            found = func(*given, **named)
        if any(each.is_write for each in func._schema.arguments):
            return _written(func, args, kwargs or {})
        if func is aten._local_scalar_dense.default:
            copied["reads"] += 1
        return tree_map_only(Tensor, _wrapped, found)


def _wrapped(held: Tensor) -> Tensor:
    return held if isinstance(held, Pretend) else Pretend(held)


def _written(func: Any, args: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    """The tensor that an operation has written into and returns; None if it returns nothing."""
    if not func._schema.returns:
        return None
    names = [each.name for each in func._schema.arguments]
    place = next(place for place, each in enumerate(func._schema.arguments) if each.is_write)
    return settings[names[place]] if names[place] in settings else args[place]


def _to_copy(source: Tensor, settings: dict[str, Any]) -> Tensor:
    device = settings.pop("device", None)
    held = source.held if isinstance(source, Pretend) else source
    made = aten._to_copy.default(held, **settings)
    if device is not None and torch.device(device).type == "cpu":
        copied["from"] += made.numel()
        copied["copies from"] += 1
        return made
    return Pretend(made)


def _count(args: Sequence[Any]) -> None:
    pairs = zip(args[0], args[1], strict=True) if isinstance(args[0], list | tuple) else [args[:2]]
    kinds = [(isinstance(to, Pretend), isinstance(source, Pretend), to.numel()) for to, source in pairs]
    for way, pair in (("to", (True, False)), ("from", (False, True))):
        sizes = [size for *kind, size in kinds if tuple(kind) == pair]
        copied[way] += sum(sizes)
        copied[f"copies {way}"] += bool(sizes)


def _check(func: Any, args: Sequence[Any], settings: Mapping[str, Any]) -> None:
    """Refuse tensors of the CPU, but for single numbers."""
    found: list[Tensor] = []
    tree_map_only(Tensor, found.append, (tuple(args[:1] if func in INDEXED else args), dict(settings)))
    alien = [each for each in found if not isinstance(each, Pretend) and each.dim() > 0]
    if alien:
        shapes = [tuple(each.shape) for each in alien]
        raise RuntimeError(f"{func}: all tensors must be on the same device, but {shapes} are on the CPU")


class _drawing:  # noqa: N801 - a context
    """Random numbers come from the device's own generator."""

    def __init__(self, func: Any) -> None:
        self.draws = torch.Tag.nondeterministic_seeded in func.tags

    def __enter__(self) -> None:
        if self.draws:
            self.state = torch.default_generator.get_state()
            torch.default_generator.set_state(Module.generator.get_state())

    def __exit__(self, *error: object) -> None:
        if self.draws:
            Module.generator.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(self.state)


class _Generators(type):
    """Generators of the device are like those of the CPU."""

    kind = torch.Generator

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        return cls.kind()

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.kind)


class _Generator(metaclass=_Generators):
    """In the place of `torch.Generator`."""


def _copy_from(source: Tensor, to: Tensor, non_blocking: bool = False) -> Tensor:
    """What `torch.tensor(numbers, device=...)` calls."""
    _count((to, source))
    to.held.copy_(source)  # type: ignore[attr-defined]
    return to


def _empty(size: Any, **settings: Any) -> Tensor:
    kept = {name: settings[name] for name in ("dtype", "memory_format") if settings.get(name) is not None}
    return Pretend(torch.empty(size, **kept))


def _empty_strided(size: Any, stride: Any, **settings: Any) -> Tensor:
    kept = {name: settings[name] for name in ("dtype",) if settings.get(name) is not None}
    return Pretend(torch.empty_strided(size, stride, **kept))


libraries: list[Any] = []


def register() -> None:
    """Make the device known to torch, in this process."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    vars(torch).update(Generator=_Generator, inference_mode=torch.no_grad)  # wrappers have no inference mode
    libraries.append(library)
