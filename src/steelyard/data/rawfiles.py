"""Raw files of a data set in a folder, plain or gzipped; checksums are of the uncompressed content.

The same set is published with different gzip headers, so a checksum of a .gz would refuse good copies.
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
    """The file called `name`, or `name`.gz, in `folder`."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def holds(folder: Path, names: Iterable[str]) -> bool:
    """Whether every one of these files is in `folder`."""
    return all(find(folder, name) for name in names)


def inflate(content: bytes) -> bytes:
    """The content without gzip, if it has any; a broken gzip is an OSError.

    It looks at the content, not the name: some servers inflate a .gz on its way.
    """
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error) as error:
        raise OSError(f"damaged gzip ({error})") from error


def read_all(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The uncompressed content of each file."""
    found = {name: find(folder, name) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise FileNotFoundError(f"no {', '.join(missing)} in it")
    return {name: inflate(path.read_bytes()) for name, path in found.items() if path}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write(path: Path, content: bytes) -> None:
    """Write the file as a whole or not at all."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
