"""The page beside a run, as a process of its own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from served import DEADLINE, events, events_url, record, wait_until

from steelyard.errors import InputError, SteelyardError
from steelyard.page import child as child_module
from steelyard.page.child import PageChild, check_installed
from steelyard.runs.folder import Lock
from steelyard.runs.writer import Recorder

PARENT = """
import os, sys, time
from pathlib import Path
from steelyard.page.child import PageChild
page = PageChild(Path(sys.argv[1]))
if len(sys.argv) > 2 and os.fork() == 0:  # a process that holds the page's standard input open
    sys.stdout = None
    os.close(1)
    time.sleep(30)
    os._exit(0)
print(page.url, page.process.pid, flush=True)
time.sleep(1000)
"""
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "run") as recorder:
        record(recorder, 1)
    return tmp_path / "run"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=DEADLINE).status_code == 200
    except httpx.TransportError:
        return False


def test_the_page_is_there_when_the_process_has_started_and_gone_when_it_is_stopped(run: Path) -> None:
    with PageChild(run) as page:
        assert page.note is None
        assert answers(page.url)
        with events(events_url(page.url, run)) as messages:
            assert next(messages)["type"] == "snapshot"
            page.stop()  # although the stream is open
        assert page.process.returncode == 0
        assert not answers(page.url)
    with PageChild(run) as again:
        assert again.url == page.url


@pytest.mark.parametrize("held", [[], ["held"]], ids=["", "input held open by another process"])
def test_it_ends_when_its_parent_is_killed(run: Path, held: list[str]) -> None:
    command = [sys.executable, "-P", "-c", PARENT, str(run), *held]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            url, pid = parent.stdout.readline().split()
            assert answers(url)
            assert is_running(int(pid))
        finally:
            parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_running(int(pid)))
    assert not answers(url)


def test_nothing_happens_to_the_parent_when_it_is_killed(run: Path) -> None:
    with PageChild(run) as page:
        page.process.kill()
        page.wait()
        assert not answers(page.url)
    page.stop()


def test_signals_of_the_terminal_do_not_reach_it(run: Path) -> None:
    with PageChild(run) as page:
        assert os.getsid(page.process.pid) == page.process.pid


@linux_only
def test_it_holds_neither_the_lock_of_the_run_nor_other_files_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Recorder(path) as recorder:
        record(recorder, 1)
        leaked = os.open(path / "record.sqlite", os.O_RDONLY)
        os.set_inheritable(leaked, True)
        with PageChild(path) as page:
            os.close(leaked)
            with events(events_url(page.url, path)) as messages:
                next(messages)
            wait_until(lambda: not _open_files(page.process.pid, path))  # it may be reading just now
            recorder.lock.release()
            Lock(path).release()


def _open_files(process: int, folder: Path) -> list[str]:
    """The files of a folder that a process has open."""
    links = []
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closed by now
            links.append(os.readlink(file))
    return [link for link in links if link.startswith(str(folder))]


@linux_only
def test_it_is_small_and_gives_way_to_the_run(run: Path) -> None:
    with PageChild(run) as page:
        with events(events_url(page.url, run)) as messages:
            next(messages)
        loaded = Path(f"/proc/{page.process.pid}/maps").read_text()
        assert "libpython" in loaded or "python" in loaded
        assert "torch" not in loaded
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, page.process.pid) == min(own + child_module.PRIORITY, 19)


def test_it_does_not_look_for_modules_in_the_current_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a module of somebody else')")
    monkeypatch.chdir(tmp_path)
    with PageChild(run) as page:
        assert answers(page.url)


def test_a_page_that_cannot_start_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        SteelyardError, match=r"could not be started: .* is neither a recorded run nor a folder"
    ):
        PageChild(tmp_path / "nothing")


def test_a_process_that_says_nothing_is_an_error(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module.sys, "executable", "/bin/false")
    with pytest.raises(SteelyardError, match="could not be started: its process did not start"):
        PageChild(run)


def test_without_its_packages_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setattr(child_module, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "steelyard\[page\]"'):
        check_installed()
