"""What the user trusts: folders whose files may name code, and the spec files of the user's own runs.

Both are kept in `$STEELYARD_CONFIG` or, if that is not set, in the system's folder for settings.
"""

import hashlib
import hmac
import json
import os
import secrets
import uuid
from pathlib import Path

import platformdirs

from steelyard.errors import InputError

FOLDERS, KEY = "trusted-folders.json", "seal.key"
SEAL = "# written by a run of this user: "
"""Begins the first line of a sealed file; a hash of the key, the file's path and its content follows."""


def config_folder() -> Path:
    """The folder of the user's settings."""
    path = os.environ.get("STEELYARD_CONFIG") or platformdirs.user_config_dir("steelyard")
    return Path(path).expanduser()


def trusted_folders() -> list[Path]:
    """The folders that the user trusts, in alphabetical order."""
    path = config_folder() / FOLDERS
    try:
        names = json.loads(path.read_text("utf-8"))
        return sorted({Path(name) for name in names})
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read the list of trusted folders {path}: {error}.") from None


def trust_folder(folder: Path) -> Path:
    """Trust all files in a folder and below it; returns the folder's full path."""
    full = folder.expanduser().resolve()
    if not full.is_dir():
        raise InputError(f"{folder} is not a folder.")
    _save({*trusted_folders(), full})
    return full


def distrust_folder(folder: Path) -> Path:
    """Undo `trust_folder`; the folder need not exist any more."""
    full, known = folder.expanduser().resolve(), trusted_folders()
    if full not in known:
        raise InputError(f"{full} is not in the list of trusted folders; `steelyard trust --list` shows it.")
    _save(set(known) - {full})
    return full


def covers(file: Path, content: bytes) -> bool:
    """Whether a file with this content is in a trusted folder, or was sealed at this place."""
    parents = file.resolve().parents
    return any(folder in parents for folder in trusted_folders()) or _is_sealed(file, content)


def sealed(text: str, file: Path) -> str:
    """The text with a first line that shows, on this computer and at this path only, that the user wrote it.

    Returns the text as it is if the key cannot be kept: then the user is asked later.
    """
    try:
        key = _key(make=True)
    except OSError:
        return text
    return text if key is None else f"{SEAL}{_seal(key, file, text.encode())}\n{text}"


def _is_sealed(file: Path, content: bytes) -> bool:
    line, _, rest = content.partition(b"\n")
    if not line.startswith(SEAL.encode()):
        return False
    try:
        key = _key(make=False)
    except OSError:
        return False
    given = line.removeprefix(SEAL.encode()).strip()
    return key is not None and hmac.compare_digest(given, _seal(key, file, rest).encode())


def _seal(key: bytes, file: Path, content: bytes) -> str:
    message = os.fsencode(file.resolve()) + b"\0" + content
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """The user's secret key; None if there is none and none is to be made."""
    path = config_folder() / KEY
    if make and not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path)
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            _link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    return key if len(key) >= 32 else None  # an empty key would make every seal forgeable


def _link(source: Path, target: Path) -> None:
    """Give a complete file its final name, unless another process was faster."""
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(source, target)


def _save(folders: set[Path]) -> None:
    path = config_folder() / FOLDERS
    temporary = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(sorted(map(str, folders)), indent=2) + "\n", "utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from None


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
