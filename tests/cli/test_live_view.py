"""The live view of a run in a real pseudo-terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

COMMAND = [sys.executable, "-P", "-m", "steelyard", "run", "fedavg", "rounds=3", "data.clients=4"]
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")
SEQUENCE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def shown(place: Path, columns: int, **variables: str) -> str:
    """All that a run of three rounds writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    unwanted = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment |= {"TERM": "xterm-256color", **variables}
    with subprocess.Popen(
        COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=place
    ) as running:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 4096):
                parts.append(part)
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    text = b"".join(parts).decode()
    assert running.returncode == 0, text
    return text


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}], ids=["colours", "NO_COLOR"])
def test_a_run_in_eighty_columns(tmp_path: Path, variables: dict[str, str]) -> None:
    text = shown(tmp_path, 80, **variables)
    lines = re.split(r"[\r\n]+", SEQUENCE.sub("", text))
    assert bool(COLOUR.search(text)) == (not variables)
    for part in (
        r"fedavg\+.*=4  .* round \d of 3 .*\d:\d\d:\d\d left",
        r"scores  .*accuracy 0\.\d{3}",
        "weighed down",
    ):
        assert any(re.search(part, line) for line in lines), part
    live = [line for line in lines if re.match("fedavg.* left|scores|weighed down", line)]
    assert all(cell_len(line) <= 80 for line in live)
