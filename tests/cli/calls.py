"""How the tests call the command line, and a small run to call it with."""

import subprocess
import sys

from typer.testing import CliRunner, Result

from steelyard.cli import app

QUICK = ("rounds=2", "data.clients=3", "training.steps=2")


def steelyard(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Like the installed command: -P keeps Python itself from looking for modules in this folder."""
    command = [sys.executable, "-P", "-m", "steelyard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def output(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return result.stdout
