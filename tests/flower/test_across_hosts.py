"""A deployment across two hosts, with nginx in front: sites get through, and nobody else."""

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from hosts import Hosts, hosts, need_hosts, on

from steelyard.flower.deployment import invitation_for, load_deployment
from steelyard.flower.founding import admit, new_deployment
from steelyard.flower.joining import prepare
from steelyard.flower.processes import Child
from steelyard.flower.status import read_status
from steelyard.runs.reader import Run

PORT, INTERNAL = 9443, 9444
STEELYARD = (sys.executable, "-m", "steelyard", "deploy")


class Finished(NamedTuple):
    """What a deployment left when it was finished."""

    folder: Path
    run: Run
    probed: dict[str, str]
    said: dict[str, str]
    """What each process wrote."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    need_hosts()
    with ExitStack() as stack:
        pair = stack.enter_context(hosts())
        folder = _deployment(tmp_path_factory.mktemp("across") / "clinics", pair)
        server = Child("serve", on(pair.server, [*STEELYARD, "serve", folder]), folder / "serve.log")
        stack.enter_context(server)
        sites = {name: _site(folder, name, pair) for name in ("oslo", "turin", "lyon")}
        for site in sites.values():
            stack.enter_context(site)
        _wait(lambda: "running" in _phase(folder), server)
        copied = _copy_of(folder, "oslo", pair)
        stack.enter_context(copied)
        program = Path(__file__).parent / "probe.py"
        ca = folder / "server" / "ca.pem"
        probe = on(pair.client, [sys.executable, program, pair.address, PORT, INTERNAL, ca])
        probed = json.loads(subprocess.check_output(probe, text=True, timeout=60))
        _wait(lambda: _phase(folder) == "finished", server)
        _wait(lambda: "not connected" in copied.said(), copied)
        said = {name: child.said() for name, child in {**sites, "copy": copied, "serve": server}.items()}
        run = Run(next((folder / "runs").iterdir()))
    return Finished(folder, run, probed, said)


def _deployment(folder: Path, pair: Hosts) -> Path:
    made = new_deployment(folder, ["oslo", "turin", "lyon"], pair.address, PORT)
    settings, spec = made / "deployment.toml", made / "spec.toml"
    text = re.sub(r"offline_seconds = \S+", "offline_seconds = 1.0\nmin_sites = 2", settings.read_text())
    settings.write_text(text)
    spec.write_text(re.sub(r"rounds = \d+", "rounds = 4", spec.read_text()))
    deployment = load_deployment(made, trust=True)
    for site in deployment.settings.sites:
        invitation = made / f"{site}.invitation"
        invitation_for(deployment, site).write(invitation)
        _, _, key = prepare(invitation)
        if site != "lyon":
            admit(made, deployment.settings.sites, key)
    return made


def _site(folder: Path, name: str, pair: Hosts) -> Child:
    command = [*STEELYARD, "join", folder / f"{name}.invitation", "--data", "site_data:load"]
    return Child(name, on(pair.client, command), folder / f"{name}.log", {"PYTHONPATH": str(folder)})


def _copy_of(folder: Path, name: str, pair: Hosts) -> Child:
    """A second site with the name and the key of another one."""
    home = folder / "copy-site"
    shutil.copytree(folder / f"{name}-site", home, ignore=shutil.ignore_patterns("lock"))
    command = [*STEELYARD, "join", folder / f"{name}.invitation", "--data", "site_data:load", "--home", home]
    return Child("copy", on(pair.client, command), folder / "copy.log", {"PYTHONPATH": str(folder)})


def _phase(folder: Path) -> str:
    path = folder / "status.json"
    return read_status(path).phase if path.is_file() else ""


def _wait(ready: object, child: Child, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        assert time.monotonic() < end, child.said()
        if child.has_ended:
            assert ready(), child.said()  # type: ignore[operator]
        time.sleep(0.2)


def test_admitted_sites_train_through_the_proxy(finished: Finished) -> None:
    assert finished.run.meta["status"] == "finished"
    used = {str(row["client"]) for row in finished.run.clients if row["status"] == "used"}
    assert used == {"oslo", "turin"}
    assert float(str([*finished.run.rounds][-1]["client_accuracy"])) > 0.6


def test_a_key_that_is_not_admitted_is_refused_and_told_so(finished: Finished) -> None:
    assert "not admitted this key" in finished.said["lyon"]
    rows = [row for row in finished.run.clients if row["client"] == "lyon"]
    assert all("not connected" in str(row["status"]) for row in rows)
    assert "lyon (not admitted)" in finished.said["serve"]


def test_a_second_site_of_the_same_name_and_key_is_refused(finished: Finished) -> None:
    assert "not connected" in finished.said["copy"]
    assert "answered" not in finished.said["copy"]


def test_what_is_not_a_sites_call_does_not_pass(finished: Finished) -> None:
    probed = finished.probed
    calls = {path: answer for path, answer in probed.items() if path.startswith("/")}
    assert {*calls.values()} == {"403"}
    assert probed["raw path"] == "403"
    assert probed["GET"] == "403"
    assert probed["internal port"] == "ConnectionRefusedError"


def test_strangers_are_refused(finished: Finished) -> None:
    assert finished.probed["without a key"] == "401"
    assert finished.probed["plain text"] == "400"
    assert finished.probed["another authority"] == "ConnectError"
    assert finished.probed["too large"] == "413"
    log = (finished.folder / "logs" / "proxy.log").read_text()
    assert '"POST /v1/control/start-run HTTP/1.1" 403' in log


def test_keys_are_private_and_in_no_log(finished: Finished) -> None:
    secrets = [finished.folder / "server" / name for name in ("ca.key", "server.key", "secret")]
    secrets += finished.folder.glob("*-site/*.key")
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
    pieces = [path.read_bytes().splitlines()[1] for path in secrets if path.suffix == ".key"]
    for path in finished.folder.rglob("*"):
        if path.is_file() and path not in secrets and "copy-site" not in path.parts:
            content = path.read_bytes()
            assert not any(piece in content for piece in pieces), path
