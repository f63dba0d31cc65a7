"""Unpack downloaded archives; a damaged archive is an OSError."""

import tarfile
import zipfile
import zlib
from pathlib import Path


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack a tar archive; one with members outside `folder` is an OSError."""
    if not hasattr(tarfile, "data_filter"):
        raise OSError("unpacking safely needs Python 3.11.4 or later")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise OSError(f"{archive.name} cannot be unpacked: {error}") from error


def read_from_zip(archive: Path, name: str) -> bytes:
    """The content of the file called `name`, in any folder of the archive."""
    try:
        with zipfile.ZipFile(archive) as members:
            path = next((path for path in members.namelist() if Path(path).name == name), None)
            if path is None:
                raise OSError(f"no {name} in the archive")
            return members.read(path)
    except zipfile.BadZipFile as error:
        raise OSError(f"the archive with {name} cannot be unpacked: {error}") from error
