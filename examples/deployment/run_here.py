"""A deployment of three clinics with all its processes on this machine: new, invite, join, admit, serve.

On four machines, the same commands run on each; docs/deployment.md is the guide.
"""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import steelyard as sy

HERE = Path(__file__).resolve().parent
SITES = ["lyon", "oslo", "turin"]
DEPLOY = [sys.executable, "-m", "steelyard", "deploy"]


def deploy(*words: str | Path) -> None:
    subprocess.run([*DEPLOY, *words], check=True)


def free_ports() -> tuple[int, int]:
    """Two free ports on this machine."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def set_values(path: Path, **values: str) -> None:
    """Change lines `key = value` of a file, as you would in an editor."""
    text = path.read_text("utf-8")
    for key, value in values.items():
        text = re.sub(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.MULTILINE)
    path.write_text(text, "utf-8")


def run(folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    port, other = free_ports()
    deploy("new", folder, "--sites", ",".join(SITES), "--host", "localhost", "--port", str(port))
    set_values(folder / "deployment.toml", input_shape="[30]", classes="2")
    shutil.copy(HERE / "spec.toml", folder)
    deploy("invite", folder, "--out", folder.parent)
    # The sites were told this port. There is no proxy, so Flower's SuperLink itself must listen there.
    set_values(folder / "deployment.toml", port=str(other), internal_port=str(port))
    for site in SITES:
        join = [*DEPLOY, "join", folder.parent / f"{site}.invitation", "--data", "clinic:load"]
        started.append(subprocess.Popen(join, cwd=HERE))
    server = subprocess.Popen([*DEPLOY, "serve", folder, "--no-proxy"])
    started.append(server)
    keys = [folder.parent / f"{site}-site" / f"{site}.pub" for site in SITES]
    while not all(key.is_file() for key in keys):
        assert all(each.poll() is None for each in started), "a process ended"
        time.sleep(0.1)
    deploy("admit", folder, *keys)
    assert server.wait() == 0, "the server failed"
    (path,) = (folder / "runs").iterdir()
    print(f"accuracy at the clinics: {sy.Run(path).rounds[-1]['client_accuracy']:.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        started: list[subprocess.Popen[bytes]] = []
        try:
            run(Path(place) / "clinics", started)
        finally:
            for each in started:
                each.terminate()
            for each in started:
                each.wait()
