"""Files that survive a crash and show damage: safetensors with a checksum, written whole or not at all.

A file is written under another name, forced to disk, renamed, and the folder is forced to disk, so that
after a crash or a power cut the old or the new file is there. The metadata hold a SHA-256 of the file.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from steelyard.errors import InputError, SteelyardError

if TYPE_CHECKING:  # a run can be read without torch, which takes seconds to import
    from torch import Tensor

Name = tuple[str, ...]
"""A path of strings; client ids in it may hold any character."""
PARTIAL = ".partial"
_CHECKSUM = re.compile(rb'"steelyard":"([0-9a-f]{64})')
_CHUNK = 2**20


def metadata(text: str = "") -> dict[str, str]:
    """Metadata of a safetensors file: space for the checksum that `replacing` fills in, and a text.

    It is one entry, because safetensors writes several in any order.
    """
    return {"steelyard": "0" * 64 + text}


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """A temporary path to write a safetensors file to; after the block it has its checksum and its name.

    If it is not durable, it is not forced to disk: `sync` does that later, for many files at once.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        path.parent.mkdir(exist_ok=True)
        yield partial
        _write_checksum(partial)
        if durable:
            sync(partial)
        os.replace(partial, path)
        if durable:
            sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError | SafetensorError):
            raise _cannot_write(path, error) from None
        raise


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all; its folder is made, also private."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file or a folder to disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: Exception) -> SteelyardError:
    reason = getattr(error, "strerror", None) or str(error)
    return SteelyardError(f"cannot write {path}: {reason}; mend that, then resume the run.")


def save_tensors(
    path: Path,
    tensors: "Mapping[Name, Tensor]",
    values: Mapping[str, Any] | None = None,
    durable: bool = True,
) -> None:
    """Write tensors by name, and `values` that JSON can hold."""
    from safetensors.torch import save_file

    numbered = {str(place): tensor for place, tensor in enumerate(_apart(tensors.values()))}
    header = {"names": list(tensors), "values": dict(values or {})}
    with replacing(path, durable) as partial:
        save_file(numbered, partial, metadata=metadata(json.dumps(header)))


def _apart(tensors: "Iterable[Tensor]") -> "Iterator[Tensor]":
    """Contiguous tensors that share no memory, as safetensors wants them; only those that do are copied."""
    seen: set[int] = set()
    for each in tensors:
        tensor = each.contiguous()
        start = tensor.untyped_storage().data_ptr()
        yield tensor.clone() if start in seen else tensor
        seen.add(start)


def load_tensors(path: Path) -> "tuple[dict[Name, Tensor], dict[str, Any]]":
    """Read what `save_tensors` wrote."""
    check_file(path)
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["steelyard"][64:])
            names = [tuple(map(str, name)) for name in header["names"]]
            tensors = {name: file.get_tensor(str(place)) for place, name in enumerate(names)}
            return tensors, dict(header["values"])
    except Exception as error:  # whatever is in the file, it is bad input
        raise InputError(f"cannot read {path}: {error}.") from None


def check_file(path: Path) -> None:
    """Refuse a safetensors file that is damaged, or that is a link to somewhere else."""
    if path.is_symlink():
        raise InputError(f"cannot read {path}: it is a symbolic link; put the file itself there.")
    try:
        with open(path, "rb") as file:
            written, _ = _checksum_in(file)
            found = _digest(file)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}.") from None
    if written != found:
        raise InputError(f"cannot read {path}: it is damaged (its checksum does not fit).")


def _write_checksum(path: Path) -> None:
    with open(path, "r+b") as file:
        digest = _digest(file)
        _, place = _checksum_in(file)
        file.seek(place)
        file.write(digest)


def _checksum_in(file: IO[bytes]) -> tuple[bytes, int]:
    """The checksum in the metadata of a safetensors file, and its position."""
    match = _CHECKSUM.search(_header(file))
    if match is None:
        raise ValueError("it has no checksum, so it was not written by this version of steelyard")
    return match[1], match.start(1)


def _digest(file: IO[bytes]) -> bytes:
    """SHA-256 of a safetensors file with zeros in place of its checksum, as hexadecimal digits."""
    header = _header(file)
    digest = hashlib.sha256(_CHECKSUM.sub(b'"steelyard":"' + b"0" * 64, header, count=1))
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest().encode()


def _header(file: IO[bytes]) -> bytes:
    """The first bytes of a safetensors file: the length of the header, and the header."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = file.read(8)
    rest = int.from_bytes(length, "little")
    if size < 8 + rest or len(length) < 8:
        raise ValueError("it is not a safetensors file, or it was cut off")
    return length + file.read(rest)
