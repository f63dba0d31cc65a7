"""Installs other frameworks on first use, each in its own virtual environment or folder."""

import subprocess
import sys
from pathlib import Path

TORCH = "torch==2.13.0"  # the same for all contenders
PACKAGES = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl[pytorch]==0.6.0"}
LIBRARIES = {"byzfl": "byzfl==0.0.11"}  # without dependencies: they use our torch
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
PATIENCE = 1200  # seconds for an installation


class UnavailableError(Exception):
    """A framework cannot run here; the message is the reason."""


def python_of(peer: str, venvs: Path) -> str:
    """The interpreter of the virtual environment that has the framework installed."""
    venv = venvs / peer
    python, wanted = venv / "bin" / "python", f"{TORCH} {PACKAGES[peer]}"
    done = venv / ".installed"
    if not done.is_file() or done.read_text("utf-8") != wanted:
        print(f"installing {wanted} into {venv} ...", file=sys.stderr, flush=True)
        _call(sys.executable, "-m", "venv", str(venv))
        _call(str(python), "-m", "pip", "install", "--quiet", TORCH, PACKAGES[peer])
        done.write_text(wanted, "utf-8")
    return str(python)


def folder_of(library: str, venvs: Path) -> Path:
    """The folder that the library is installed in, for `sys.path`."""
    folder, wanted = venvs / library, LIBRARIES[library]
    done = folder / ".installed"
    if not done.is_file() or done.read_text("utf-8") != wanted:
        print(f"installing {wanted} into {folder} ...", file=sys.stderr, flush=True)
        install = ("install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder))
        _call(sys.executable, "-m", "pip", *install, wanted)
        done.write_text(wanted, "utf-8")
    return folder


def _call(*command: str) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"installation took over {PATIENCE} s") from None
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
        raise UnavailableError(
            f"not installed: {(errors or ['no reason given'])[-1].removeprefix('ERROR: ')}"
        )
