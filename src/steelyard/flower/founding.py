"""A new deployment: its folder with everything that the server needs, and what its operator does next."""

import getpass
import json
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import tomli_w

from steelyard.errors import InputError
from steelyard.flower import credentials, proxy
from steelyard.flower.deployment import (
    LOGS,
    RUNS,
    SECRETS,
    SETTINGS,
    SITES,
    SPEC_FILE,
    STATUS,
    checked,
)
from steelyard.specs.schema import Spec

UNITS, REMOVED = "systemd", "removed"


def new_deployment(folder: Path, sites: Sequence[str], host: str, port: int = 9443) -> Path:
    """Make the folder of a deployment that works at once, on digits; its operator then changes the files."""
    table = {"host": host, "port": port, "internal_port": port + 1, "sites": sorted(sites)}
    checked({**table, "dealt": True}, "deploy new")
    folder = _new_folder(folder)
    words = {
        "NAME": re.sub(r"[^a-z0-9-]+", "-", folder.name.lower()).strip("-") or "federation",
        "HOST": host,
        "PORT": str(port),
        "INTERNAL": str(port + 1),
        "SITES": json.dumps(sorted(sites)),
        "NAMES": ", ".join(sorted(sites)),
        "COUNT": str(len(sites)),
        "FIRST": sorted(sites)[0],
        "PATH": folder.name,
        "FOLDER": str(folder),
        "USER": getpass.getuser(),
        "STEELYARD": str(Path(sys.argv[0]).resolve()),
    }
    for name in (SETTINGS, SPEC_FILE, "site_data.py", "app.py", "pyproject.toml", "README.md"):
        (folder / name).write_text(filled(name, words), "utf-8")
    (folder / UNITS).mkdir()
    for name in ("server.service", "site.service"):
        (folder / UNITS / name).write_text(filled(name, words), "utf-8")
    private = (SECRETS, LOGS, SITES, RUNS, STATUS, UNITS)  # nor does `flwr run` send it to sites
    (folder / ".gitignore").write_text("".join(f"/{name}\n" for name in private), "utf-8")
    _make_secrets(folder, host, port, port + 1)
    return folder


def new_trial(folder: Path, spec: Spec, sites: Sequence[str], port: int, internal: int) -> Path:
    """The folder of a deployment on this machine, whose sites hold the clients that a spec deals."""
    folder = _new_folder(folder)
    settings = {
        "host": "localhost",
        "port": port,
        "internal_port": internal,
        "sites": sorted(sites),
        "dealt": True,
        "start_seconds": 300.0,
    }
    (folder / SETTINGS).write_text(tomli_w.dumps(settings), "utf-8")
    (folder / SPEC_FILE).write_text(spec.to_toml(), "utf-8")
    _make_secrets(folder, "localhost", port, internal)
    return folder


def _new_folder(folder: Path) -> Path:
    folder = folder.expanduser().resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty; choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SITES, LOGS):
        (folder / name).mkdir()
    (folder / SECRETS).mkdir(mode=0o700)
    return folder


def _make_secrets(folder: Path, host: str, port: int, internal: int) -> None:
    credentials.make_server_credentials(folder / SECRETS, host)
    proxy.write_config(folder / SECRETS, folder / LOGS, port, internal)


def filled(name: str, words: Mapping[str, str]) -> str:
    """A template with its words."""
    text = (resources.files("steelyard.flower") / "templates" / name).read_text("utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def admit(folder: Path, known: Sequence[str], public_key: Path) -> str:
    """Admit the site whose public key this is; the file's name is the site's. Returns the name."""
    site = public_key.stem
    if site not in known:
        raise InputError(f"{public_key.name} is named after no site: the sites are {', '.join(known)}.")
    key = credentials.public_key_of(public_key)
    for other in sorted((folder / SITES).glob("*.pub")):
        if other.stem != site and credentials.public_key_of(other) == key:
            raise InputError(f"{public_key} is the key of {other.stem}: every site makes a key of its own.")
    if any(credentials.public_key_of(old) == key for old in (folder / SITES / REMOVED).glob("*.pub")):
        raise InputError(
            f"{public_key} was removed, and a removed key cannot come back: at {site}, delete {site}.key and "
            "join again, which makes a new one."
        )
    partial = folder / SITES / f"{site}.pub.partial"
    shutil.copyfile(public_key, partial)
    partial.replace(folder / SITES / f"{site}.pub")
    return site


def remove(folder: Path, site: str) -> None:
    """Take a site's key away for good."""
    file = folder / SITES / f"{site}.pub"
    if not file.is_file():
        raise InputError(f"{site} is not admitted.")
    (folder / SITES / REMOVED).mkdir(exist_ok=True)
    file.replace(folder / SITES / REMOVED / f"{site}-{time.time_ns()}.pub")
