"""Where a data set's raw files can be fetched: a publisher's server or a package registry.

Origins are plain values. The code that downloads files or runs `npm` and `apt-get` is in
`steelyard.data.fetching`; only `fetch` imports it, so a data set on disk loads without it. An origin does not
check what it fetches: the store compares checksums.
"""

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from steelyard.data.rawfiles import holds, read, read_all


class Origin(Protocol):
    @property
    def label(self) -> str:
        """The name of this origin in messages."""

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        """The content of each file, or an OSError with a short reason; `scratch` is an empty folder."""


@dataclass(frozen=True)
class Download:
    """A folder on a server that holds every file as `<name>.gz`; `url` ends with a slash."""

    url: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        from steelyard.data.fetching.download import download

        for name in names:
            download(f"{self.url}{name}.gz", scratch / name)
        return {name: read(scratch / name) for name in names}


@dataclass(frozen=True)
class Address:
    """The address of a data set's only file, plain or gzipped; its name there does not matter."""

    url: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        from steelyard.data.fetching.download import download

        (name,) = names
        download(self.url, scratch / name)
        return {name: read(scratch / name)}


@dataclass(frozen=True)
class Archive:
    """A tar archive on a server with the files in `folder`."""

    url: str
    folder: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        from steelyard.data.fetching.archives import unpack_tar
        from steelyard.data.fetching.download import download

        archive = scratch / self.url.rsplit("/", 1)[-1]
        download(self.url, archive)
        unpack_tar(archive, scratch / "unpacked")
        return read_all(scratch / "unpacked" / self.folder, names)


@dataclass(frozen=True)
class Uci:
    """The UCI repository: `paths` maps each file to its path there, or to the zip archive that holds it."""

    paths: Mapping[str, str]
    url: str = "https://archive.ics.uci.edu/ml/machine-learning-databases/"

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        from steelyard.data.fetching.archives import read_from_zip
        from steelyard.data.fetching.download import download

        contents = {}
        for name in names:
            file = scratch / name
            download(self.url + quote(self.paths[name]), file)
            zipped = self.paths[name].endswith(".zip")
            content = read_from_zip(file, name) if zipped else read(file)
            contents[name] = content.replace(b"\r\n", b"\n")  # copies differ in their line ends
        return contents


@dataclass(frozen=True)
class Npm:
    """An npm package, `name@version`, with the files in `folder`.

    `reader` names the function (folder, file names) -> contents that reads them, as "module:function".
    """

    package: str
    folder: str
    reader: str = "steelyard.data.rawfiles:read_all"

    @property
    def label(self) -> str:
        return f"npm package {self.package}"

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        from steelyard.data.fetching.packages import npm_package

        folder = npm_package(self.package, scratch) / self.folder
        contents: dict[str, bytes] = pkgutil.resolve_name(self.reader)(folder, names)
        return contents


@dataclass(frozen=True)
class Debian:
    """A Debian package with the files in `folder`, relative to `root`; downloaded if it is not installed."""

    package: str
    folder: str
    root: Path = Path("/")

    @property
    def label(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        if holds(self.root / self.folder, names):
            return read_all(self.root / self.folder, names)
        from steelyard.data.fetching.packages import debian_package

        return read_all(debian_package(self.package, scratch) / self.folder, names)
