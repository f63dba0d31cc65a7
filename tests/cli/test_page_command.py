"""`steelyard page`, and --page of the commands that run a federation."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from calls import QUICK, steelyard

from steelyard.cli.page import _open_browser
from steelyard.flower.status import Status
from steelyard.runs.reader import Run

URL = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{43}/")
DEADLINE = 120.0
COMMANDS = (
    ("page", "."),
    ("run", *QUICK, "--page"),
    ("run", "--page"),
    ("resume", ".", "--page"),
    ("deploy", "serve", ".", "--page"),
)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Undo that background processes of a shell ignore SIGINT, which child processes inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def start(*words: object, **options: Any) -> "Iterator[subprocess.Popen[str]]":
    """A command in a process of its own, which is killed if it has not ended after the block."""
    command = [sys.executable, "-P", "-m", "steelyard", *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **{**pipes, **options}) as running:
        try:
            yield running
        finally:
            running.kill()


def url_in(stream: Any) -> str:
    """The address in the next line of a stream that has one."""
    for line in stream:
        if found := URL.search(line):
            return found[0]
    pytest.fail("no address")


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=DEADLINE).status_code == 200
    except httpx.TransportError:
        return False


def messages(response: httpx.Response) -> Iterator[dict[str, Any]]:
    return (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_page_prints_its_address_and_serves_until_it_is_stopped(finished: Path, number: int) -> None:
    with start("page", finished) as running:
        url = url_in(running.stdout)
        assert answers(url)
        with httpx.stream("GET", f"{url}run/{finished.name}/events", timeout=DEADLINE) as response:
            first = next(messages(response))
            assert first["type"] == "snapshot"
            running.send_signal(number)
            stdout, stderr = running.communicate(timeout=DEADLINE)
    assert running.returncode == (0 if number == signal.SIGINT else 143)
    assert stdout == ""
    assert "Traceback" not in stderr
    assert (stderr == "") == (number == signal.SIGINT)


def test_page_of_a_folder_with_json_and_a_port(finished: Path) -> None:
    with start("page", finished.parent, "--json") as running:
        assert running.stdout is not None
        url = json.loads(running.stdout.readline())["url"]
        assert finished.name in httpx.get(f"{url}runs.json").text
        port = re.search(r":(\d+)/", url)
        assert port is not None
        refused = steelyard("page", finished.parent, "--port", port[1])
        assert refused.exit_code == 2
        assert (
            refused.stderr
            == f"error: port {port[1]} is taken by another program; choose another one with --port.\n"
        )
        with start("page", finished.parent) as second:
            assert second.stderr is not None
            assert f"port {port[1]}, where this page usually is, is taken" in second.stderr.readline()
            assert url_in(second.stdout) != url
            second.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGINT)
    with start("page", finished.parent, "--port", port[1]) as running:
        assert url_in(running.stdout) == url
        running.send_signal(signal.SIGINT)


def test_page_of_nothing(place: Path) -> None:
    result = steelyard("page", place / "nothing")
    assert result.exit_code == 2
    assert result.stderr.endswith("nothing is neither a recorded run nor a folder of runs.\n")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_its_packages_nothing_begins(
    place: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(place.rglob("*"))
    monkeypatch.setattr("steelyard.page.child.find_spec", lambda name: None)
    result = steelyard(*words)
    assert result.exit_code == 2
    assert (
        result.stderr
        == 'error: the page needs packages that are not installed: pip install "steelyard[page]".\n'
    )
    assert sorted(place.rglob("*")) == before


def test_a_run_can_be_followed_from_its_first_round_and_the_page_ends_with_it(place: Path) -> None:
    with start("run", "rounds=100000", "--page") as running:
        url = url_in(running.stderr)
        (path,) = (place / "runs").iterdir()
        with httpx.stream("GET", f"{url}run/{path.name}/events", timeout=DEADLINE) as response:
            stream = messages(response)
            found = [next(stream) for _ in range(4)]
        assert found[0]["type"] == "snapshot"
        done = [rounds_in(message) for message in found]
        assert done == sorted(set(done))
        running.send_signal(signal.SIGINT)
        stdout, _ = running.communicate(timeout=DEADLINE)
    assert (running.returncode, stdout) == (130, "")
    assert Run(path).meta["status"] == "interrupted"
    assert not answers(url)
    with start("resume", path, "--page", "--json") as resumed:
        assert url_in(resumed.stderr) == url
        assert answers(url)
    wait_until(lambda: not answers(url))


def rounds_in(message: dict[str, Any]) -> int:
    return int((message["data"]["runs"][0] if message["type"] == "snapshot" else message["fields"])["done"])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_goes_on_when_its_page_is_killed(place: Path) -> None:
    with start("run", "rounds=100000", "--page") as running:
        url_in(running.stderr)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        (child,) = [int(pid) for pid in children if "page.child" in command_of(pid)]
        os.kill(child, signal.SIGKILL)
        (path,) = (place / "runs").iterdir()
        reached = len(Run(path).rounds)
        wait_until(lambda: len(Run(path).rounds) > reached + 2)


def command_of(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_with_json_the_address_is_not_on_standard_output(place: Path) -> None:
    with start("run", *QUICK, "--page", "--json") as running:
        stdout, stderr = running.communicate(timeout=DEADLINE)
    assert running.returncode == 0
    assert json.loads(stdout)["rounds"] == 2
    assert URL.search(stderr)
    assert not URL.search(stdout)


def test_the_page_of_the_demo_is_the_list_of_runs(place: Path) -> None:
    with start("run", "--page", "--out", "some/runs") as running:
        url = url_in(running.stderr)
        assert httpx.get(f"{url}runs.json").json()["folder"] == "runs"
        running.communicate(timeout=DEADLINE)
    assert running.returncode == 0
    assert not answers(url)


def test_on_a_terminal_the_page_stays_open_until_control_c(place: Path) -> None:
    ours, theirs = pty.openpty()
    with start("run", *QUICK, "--page", stdin=theirs, stderr=theirs, start_new_session=True) as running:
        os.close(theirs)
        said = ""

        def says(words: str) -> bool:
            nonlocal said
            if select.select([ours], [], [], 0.1)[0]:
                said += os.read(ours, 10_000).decode()
            return words in said

        wait_until(lambda: says("stays open until Ctrl-C"))
        url = URL.search(said)
        assert url is not None
        assert answers(url[0])
        running.send_signal(signal.SIGINT)
        stdout, _ = running.communicate(timeout=DEADLINE)
    os.close(ours)
    assert running.returncode == 0
    assert "client-0" in stdout
    assert not answers(url[0])


def test_the_page_of_a_deployment_begins_when_its_run_is_known(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(folder: Path, watch: Callable[[Status], None], **options: Any) -> SimpleNamespace:
        status = Status("hospitals")
        watch(status)
        status.run = str(finished)
        watch(status)
        watch(status)
        return SimpleNamespace(path=finished)

    monkeypatch.setattr("steelyard.flower.serving.serve", serve)
    result = steelyard("deploy", "serve", "hospitals", "--page")
    assert result.exit_code == 0, result.stderr
    assert len(URL.findall(result.stderr)) == 1
    assert not URL.search(result.stdout)
    without = steelyard("deploy", "serve", "hospitals")
    assert not URL.search(without.stderr)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def test_the_secret_is_not_in_the_arguments_of_the_browser(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    _open_browser(finished, "http://127.0.0.1:20000/secret/")
    (address,) = opened
    file = Path(address.removeprefix("file://"))
    assert "secret" not in address
    assert "url=http://127.0.0.1:20000/secret/" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
