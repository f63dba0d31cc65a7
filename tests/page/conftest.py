"""Fixtures for tests of pages in a real browser, `open_page` and `axe`, and a run to serve."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import browser as chromium
import pytest
from playwright.sync_api import Error, Page
from served import record

from steelyard.runs.writer import Recorder

SPEC = """
rounds = 5
seed = 3
[weighing]
name = "majority"
"""


@pytest.fixture(scope="session")
def window() -> Iterator[chromium.Window]:
    """One browser for all tests of this process."""
    program = chromium.find_browser()
    if program is None:
        pytest.skip(f"no browser: install one of {', '.join(chromium.NAMES)}")
    with ExitStack() as stack:
        try:
            window = stack.enter_context(chromium.launched(program))
        except Error as error:
            pytest.skip(f"{program} does not start: {error.message.splitlines()[0]}")
        yield window


@pytest.fixture
def open_page(window: chromium.Window) -> Iterator[Callable[..., chromium.Opened]]:
    """`open_page(path or address, width=, dark=, ...)`: the arguments are those of `Window.open`."""
    with window.in_use():
        yield window.open


@pytest.fixture
def axe() -> Callable[[Page], list[str]]:
    """`axe(page)`: serious and critical violations of accessibility rules, found by axe-core."""
    path = chromium.find_axe()
    if path is None:
        pytest.skip("no axe-core: npm install --no-save --prefix .venv/axe axe-core@4 (or set STEELYARD_AXE)")
    return partial(chromium.severe_violations, axe=path)


@pytest.fixture(autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_CONFIG", str(tmp_path_factory.mktemp("settings")))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of two rounds."""
    with Recorder(tmp_path / "runs" / "first", spec=SPEC, meta={"name": "first name"}) as recorder:
        record(recorder, 1, accuracy=0.5)
        record(recorder, 2, accuracy=0.75)
    return tmp_path / "runs" / "first"
