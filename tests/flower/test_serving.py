"""Which run a server goes on with, and what it refuses, without any process of Flower."""

import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from flwr.app import RecordDict

from steelyard.errors import InputError, SteelyardError
from steelyard.flower.credentials import make_server_credentials, renew_server_certificate
from steelyard.flower.deployment import Deployment, invitation_for, load_deployment
from steelyard.flower.founding import admit, new_deployment, remove
from steelyard.flower.joining import prepare, why_unreachable
from steelyard.flower.remote import Patience, RemoteSites
from steelyard.flower.serving import FinishedError, open_run
from steelyard.types import Broadcast, ClientId, Failure, Message

SITES = ["lyon", "oslo"]


def quiet(text: str) -> None:
    """No log."""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return load_deployment(new_deployment(tmp_path / "clinics", SITES, "localhost"), trust=True)


def edited(deployment: Deployment, file: str, old: str, new: str) -> Deployment:
    path = deployment.folder / file
    path.write_text(re.sub(old, new, path.read_text("utf-8")), "utf-8")
    return load_deployment(deployment.folder, trust=True)


def test_an_unfinished_run_is_continued_under_its_id(deployment: Deployment) -> None:
    with pytest.raises(KeyboardInterrupt), (first := open_run(deployment, False, False, quiet)).recorder:
        raise KeyboardInterrupt
    second = open_run(deployment, False, False, quiet)
    with second.recorder:
        assert second.id == first.id
        assert second.recorder.path == first.recorder.path
        assert second.round == 0


def test_a_finished_run_is_not_run_again_unless_asked(deployment: Deployment) -> None:
    with (first := open_run(deployment, False, False, quiet)).recorder:
        pass
    with pytest.raises(FinishedError, match="is finished"):
        open_run(deployment, False, False, quiet)
    with (again := open_run(deployment, True, False, quiet)).recorder:
        assert again.id != first.id


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("spec.toml", r"lr = 0\.1", "lr = 0.2", "the spec has changed since"),
        ("deployment.toml", r'"oslo"', '"oslo", "turin"', "keeps the sites that it began with: lyon oslo"),
    ],
)
def test_an_unfinished_run_keeps_its_spec_and_its_sites(
    deployment: Deployment, file: str, old: str, new: str, said: str
) -> None:
    with pytest.raises(KeyboardInterrupt), open_run(deployment, False, False, quiet).recorder:
        raise KeyboardInterrupt
    changed = edited(deployment, file, old, new)
    with pytest.raises(InputError, match=said):
        open_run(changed, False, False, quiet)
    with open_run(changed, True, False, quiet).recorder as recorder:
        assert recorder.path.is_dir()


def test_the_package_is_found_without_an_import_of_its_own() -> None:
    program = "import steelyard as sy; print(sy.flower.serve.__name__, sy.flower.join.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["serve", "join"], done.stderr


def test_a_removed_key_cannot_come_back(deployment: Deployment, tmp_path: Path) -> None:
    invitation = tmp_path / "oslo.invitation"
    invitation_for(deployment, "oslo").write(invitation)
    _, home, key = prepare(invitation)
    admit(deployment.folder, SITES, key)
    assert set(deployment.admitted()) == {"oslo"}
    remove(deployment.folder, "oslo")
    assert deployment.admitted() == {}
    with pytest.raises(InputError, match="a removed key cannot come back"):
        admit(deployment.folder, SITES, key)
    with pytest.raises(InputError, match="oslo is not admitted"):
        remove(deployment.folder, "oslo")
    (home / "oslo.key").unlink()
    _, _, key = prepare(invitation)
    assert admit(deployment.folder, SITES, key) == "oslo"


class Empty:
    """A channel to which nobody is connected."""

    def connected(self) -> Mapping[ClientId, str]:
        return {}

    def send(self, questions: Mapping[ClientId, RecordDict], seconds: float) -> dict[ClientId, str]:
        raise AssertionError("there is nobody to ask")

    def receive(self, ids: object, max_bytes: float) -> dict[str, RecordDict]:
        return {}

    def reopen(self) -> None:
        raise AssertionError("the channel is not lost")


def test_an_absent_site_delays_the_run_once(tmp_path: Path) -> None:
    sites = RemoteSites(SITES, Empty(), "h", "ab" * 16, tmp_path, Patience(offline=1.0))  # type: ignore[arg-type]
    broadcast = Broadcast(1, Message(torch.zeros(3)))
    seconds = []
    for _ in range(3):
        start = time.monotonic()
        found = list(sites.ask(broadcast, SITES))
        seconds.append(time.monotonic() - start)
        assert all(isinstance(each, Failure) and "not connected for" in each.reason for each in found)
    assert seconds[0] >= 0.9
    assert max(seconds[1:]) < 0.9


def test_a_run_that_no_site_can_join_stops_with_the_reasons(tmp_path: Path) -> None:
    sites = RemoteSites(SITES, Empty(), "h", "ab" * 16, tmp_path, Patience(offline=0.1))  # type: ignore[arg-type]
    with pytest.raises(SteelyardError, match=r"no site can take part \(lyon: not connected .*; oslo: not"):
        sites.profiles(SITES)


def test_a_server_that_cannot_be_reached_is_named(deployment: Deployment) -> None:
    reason = why_unreachable("127.0.0.1:9", deployment.secrets / "ca.pem")
    assert reason == "no connection to 127.0.0.1:9 (Connection refused)"


@pytest.mark.parametrize("kind", ["expired", "foreign"])
def test_a_certificate_that_is_expired_or_foreign_is_refused(
    kind: str, deployment: Deployment, tmp_path: Path
) -> None:
    served, ca = deployment.secrets, deployment.secrets / "ca.pem"
    if kind == "expired":
        renew_server_certificate(served, "localhost", days=-1)
    else:
        served = tmp_path / "other"
        served.mkdir()
        make_server_credentials(served, "localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(served / "server.pem", served / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as plain, ThreadPoolExecutor(1) as pool:
        pool.submit(_accept, plain, context)
        reason = why_unreachable(f"localhost:{plain.getsockname()[1]}", ca)
    assert "is not the one that invited this site" in reason
    assert kind != "expired" or "expired" in reason


def _accept(plain: socket.socket, context: ssl.SSLContext) -> None:
    with suppress(OSError):
        context.wrap_socket(plain.accept()[0], server_side=True).close()
