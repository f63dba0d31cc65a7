"""Raw files of a data set in a folder, plain or gzipped.

Checksums are of the uncompressed content: the same file is published with different gzip headers.
"""

import gzip
import hashlib
import os
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, BinaryIO, cast

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 64 << 20  # of a file, unpacked; the largest, the training images of MNIST, has 47 million


def find(folder: Path, name: str) -> Path | None:
    """The path of `name`, or of `name`.gz, in `folder`, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def holds(folder: Path, names: Iterable[str]) -> bool:
    """Whether all these files are in `folder`."""
    return all(find(folder, name) for name in names)


def read(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a file, unpacked if it is gzipped; a damaged gzip, or a larger file, is an OSError.

    The content decides, not the file name, because some servers unpack a .gz when they send it.
    """
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP_MAGIC
        file.seek(0)
        try:
            return read_at_most(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file, limit)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(f"damaged gzip ({error})") from error


def read_at_most(file: IO[bytes], limit: int) -> bytes:
    """The rest of a file. Reading stops beyond the limit, so that a small archive cannot fill the memory."""
    content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"it has more than {limit:,} bytes")
    return content


def read_all(folder: Path, names: Iterable[str], limit: int = MAX_BYTES) -> dict[str, bytes]:
    """The unpacked content of each file."""
    paths = {name: find(folder, name) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise FileNotFoundError(f"no {', '.join(missing)} in it")
    return {name: read(path, limit) for name, path in paths.items() if path}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write(path: Path, content: bytes) -> None:
    """Write the whole file or nothing."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
