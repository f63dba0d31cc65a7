"""Installs other frameworks on first use, each in its own virtual environment or folder."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Peer(NamedTuple):
    """A framework, and how pip installs it."""

    package: str
    options: Sequence[str] = ()
    needs: Sequence[str] = ()
    """What it imports, where it is installed without its own dependencies."""


TORCH = "torch==2.13.0"  # the same for all contenders
PEERS = {
    "flower": Peer("flwr[simulation]==1.41.0"),
    "pfl": Peer("pfl[pytorch]==0.6.0"),
    # It asks for Python 3.12, but all that is used here runs on 3.11; 3.0 needs 3.14.
    "blazefl": Peer("blazefl==2.0.3", ("--no-deps", "--ignore-requires-python"), ("numpy",)),
    # It also asks for torchvision, opacus, wandb and others, which federated averaging never imports.
    "fluke": Peer(
        "fluke-fl==0.8.1",
        ("--no-deps",),
        (
            *("numpy", "pandas", "scikit-learn", "torchmetrics", "rich", "psutil", "matplotlib", "seaborn"),
            *("diskcache", "omegaconf", "cerberus", "pyyaml"),
        ),
    ),
}
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
    package, options, needs = PEERS[peer]
    python, wanted = venv / "bin" / "python", " ".join([TORCH, *needs, package])
    done = venv / ".installed"
    if not done.is_file() or done.read_text("utf-8") != wanted:
        print(f"installing {wanted} into {venv} ...", file=sys.stderr, flush=True)
        _call(sys.executable, "-m", "venv", str(venv))
        install = (str(python), "-m", "pip", "install", "--quiet")
        _call(*install, TORCH, *needs)  # torch first, so that nothing replaces the build that it finds
        _call(*install, TORCH, *options, package)
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
