"""Unpack downloaded archives; one that is damaged, or larger than it may be, is an OSError."""

import gzip
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from steelyard.data.rawfiles import GZIP_MAGIC, MAX_BYTES, read_at_most

MAX_ARCHIVE_BYTES = 1 << 30  # of all files in an archive, unpacked
MAX_READ = (
    1 << 20
)  # bytes that tarfile may ask for at once: a header that claims more is not read into memory


class LimitedReader:
    """An archive, unpacked as it is read, that ends with an OSError when it gets too large."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self.file, self.limit = file, limit

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_READ:
            raise OSError(f"a part of the archive claims {size:,} bytes")
        content = self.file.read(size)
        self._check(self.file.tell())
        return content

    def seek(self, place: int) -> int:
        self._check(place)
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()

    def _check(self, place: int) -> None:
        if place > self.limit:
            raise OSError(f"the archive unpacks to more than {self.limit:,} bytes")


def unpack_tar(archive: Path, folder: Path, limit: int = MAX_ARCHIVE_BYTES) -> None:
    """Unpack a tar archive, plain or gzipped; one with members outside `folder` is an OSError."""
    if not hasattr(tarfile, "data_filter"):
        raise OSError("unpacking safely needs Python 3.11.4 or later")
    try:
        with archive.open("rb") as packed:
            zipped = packed.read(2) == GZIP_MAGIC
            packed.seek(0)
            content = cast(BinaryIO, gzip.GzipFile(fileobj=packed)) if zipped else packed
            reader = cast(BinaryIO, LimitedReader(content, limit))
            with tarfile.open(fileobj=reader, mode="r:") as tar:
                for member in tar:
                    tar.extract(member, folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise OSError(f"{archive.name} cannot be unpacked: {error}") from error


def read_from_zip(archive: Path, name: str, limit: int = MAX_BYTES) -> bytes:
    """The content of the file called `name`, in any folder of the archive."""
    try:
        with zipfile.ZipFile(archive) as members:
            path = next((path for path in members.namelist() if Path(path).name == name), None)
            if path is None:
                raise OSError(f"no {name} in the archive")
            with members.open(path) as file:
                return read_at_most(file, limit)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise OSError(f"the archive with {name} cannot be unpacked: {error}") from error
