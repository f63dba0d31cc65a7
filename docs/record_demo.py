"""Record `steelyard run` in a pseudo-terminal as docs/demo.svg: a frame of the progress bar and the result.

python docs/record_demo.py
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 80


def record(folder: str) -> str:
    """Everything that the command writes to a terminal of WIDTH columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "steelyard", "run"]
    with subprocess.Popen(command, stdout=follower, stderr=follower, cwd=folder, env=environment) as process:
        os.close(follower)
        pieces = []
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:  # the command has ended
                break
            if not piece:
                break
            pieces.append(piece)
    if process.returncode:
        raise SystemExit(f"steelyard run ended with {process.returncode}")
    return b"".join(pieces).decode()


def live_frames(output: str) -> list[list[str]]:
    """The lines of each picture of the live view that has scores."""
    plain = re.sub(r"\x1b\[[0-9;]*[AKJlh]|\x1b\[\?25[lh]|\x1b\[2K", "", output)
    lines = [line for line in re.split(r"[\r\n]+", plain) if line.strip()]
    frames: list[list[str]] = []
    for line in lines:
        words = re.sub(r"\x1b\[[0-9;]*m", "", line).split()
        if "left" in words and "round" in words:
            frames.append([line])
        elif frames and words[0] in ("scores", "weighed", "rejected"):
            frames[-1].append(line)
    return [frame for frame in frames if len(frame) > 2]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        output = record(folder)
    frames = live_frames(output)
    end = re.sub(r"\x1b\[[0-9;]*[AKJlh]|\x1b\[\?25[lh]|\r", "", output[output.rindex("\x1b[?25h") :])
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "dim"), "steelyard run"))
    console.print(Text.from_ansi("\n".join(frames[2 * len(frames) // 3])))
    console.print()
    console.print(Text.from_ansi(end.strip("\n")))
    Path(__file__).with_name("demo.svg").write_text(console.export_svg(title="steelyard"), "utf-8")


if __name__ == "__main__":
    main()
