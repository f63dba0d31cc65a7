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

GZIP_MAGIC = b"\x1f\x8b"


def find(folder: Path, name: str) -> Path | None:
    """The path of `name`, or of `name`.gz, in `folder`, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def holds(folder: Path, names: Iterable[str]) -> bool:
    """Whether all these files are in `folder`."""
    return all(find(folder, name) for name in names)


def inflate(content: bytes) -> bytes:
    """Decompress gzipped content and return any other as it is; a damaged gzip is an OSError.

    The content decides, not the file name, because some servers decompress a .gz when they send it.
    """
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error) as error:
        raise OSError(f"damaged gzip ({error})") from error


def read_all(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The uncompressed content of each file."""
    paths = {name: find(folder, name) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise FileNotFoundError(f"no {', '.join(missing)} in it")
    return {name: inflate(path.read_bytes()) for name, path in paths.items() if path}


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
