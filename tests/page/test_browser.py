"""The fixtures that tests of pages stand on: what they must notice, they notice."""

import asyncio
import http.server
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from browser import Opened
from playwright.sync_api import Page

Open = Callable[..., Opened]
GOOD = "<!doctype html><html lang=en><title>Page</title><main><h1>Heading</h1><p>Text</p></main></html>"
BAD = "<!doctype html><html><title>Page</title><main><img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>"


def _wait(opened: Opened, is_so: Callable[[], bool]) -> None:
    """Events arrive while Playwright waits."""
    for _ in range(200):
        if is_so():
            return
        opened.page.wait_for_timeout(50)
    raise AssertionError(f"requests: {opened.requests}, errors: {opened.errors}")


@pytest.fixture
def page_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(html: str) -> Path:
        path = tmp_path / "a page.html"
        path.write_text(html)
        return path

    return write


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    """A server of the files in tmp_path."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *values: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_quiet_page_has_no_errors_and_asks_for_itself_alone(open_page: Open, page_file) -> None:
    path = page_file(GOOD)
    opened = open_page(path)
    assert opened.page.inner_text("h1") == "Heading"
    assert (opened.errors, opened.requests, opened.outside()) == ([], [path.as_uri()], [])


def test_errors_are_recorded(open_page: Open, page_file) -> None:
    opened = open_page(page_file(GOOD + "<script>console.error('one'); throw new Error('two')</script>"))
    _wait(opened, lambda: len(opened.errors) > 1)
    assert sorted(error.splitlines()[0] for error in opened.errors) == ["one", "two"]


@pytest.mark.parametrize(
    "html",
    [
        "<img src='http://example.org/secret'>",
        "<script>fetch('http://example.org/secret').catch(() => 0)</script>",
        "<script>navigator.sendBeacon('http://example.org/secret', 'x')</script>",
        "<link rel=stylesheet href='http://example.org/secret'>",
        "<style>@import 'http://example.org/secret'</style>",
        "<iframe src='http://example.org/secret'></iframe>",
    ],
)
def test_a_request_that_leaves_the_page_is_recorded(open_page: Open, page_file, html: str) -> None:
    opened = open_page(page_file(GOOD + html))
    _wait(opened, lambda: len(opened.requests) > 1)
    assert opened.outside() == opened.outside("http://127.0.0.1:1") == ["http://example.org/secret"]


def test_a_websocket_is_a_request(open_page: Open, page_file) -> None:
    opened = open_page(page_file(GOOD + "<script>new WebSocket('ws://127.0.0.1:1/live')</script>"))
    _wait(opened, lambda: len(opened.requests) > 1)
    assert opened.outside() == ["ws://127.0.0.1:1/live"]
    assert opened.outside("http://127.0.0.1:1") == []


def test_a_page_of_a_server(open_page: Open, page_file, origin: str) -> None:
    page_file(GOOD + "<script>fetch('more.json').catch(() => 0)</script>")
    opened = open_page(f"{origin}/a%20page.html")
    opened.page.wait_for_load_state("networkidle")
    assert opened.requests == [f"{origin}/a%20page.html", f"{origin}/more.json"]
    assert opened.outside(origin) == []
    assert opened.outside() == opened.outside("http://127.0.0.1:1") == opened.requests


def test_size_colours_motion_and_scripts_are_chosen(open_page: Open, page_file) -> None:
    path = page_file(GOOD + "<script>document.title = 'changed'</script>")
    state = (
        "[innerWidth, innerHeight, matchMedia('(prefers-color-scheme: dark)').matches, "
        "matchMedia('(prefers-reduced-motion: reduce)').matches]"
    )
    assert open_page(path).page.evaluate(state) == [1280, 800, False, False]
    chosen = open_page(path, width=390, height=700, dark=True, reduced_motion=True).page
    assert chosen.evaluate(state) == [390, 700, True, True]
    assert chosen.title() == "changed"
    assert open_page(path, javascript=False).page.title() == "Page"


def test_axe_finds_what_is_serious(open_page: Open, page_file, axe: Callable[[Page], list[str]]) -> None:
    assert axe(open_page(page_file(GOOD)).page) == []
    found = axe(open_page(page_file(BAD)).page)
    assert {line.split(" ")[0] for line in found} == {"image-alt", "html-has-lang"}


def test_axe_works_under_a_strict_policy_and_sends_nothing(open_page: Open, page_file, axe) -> None:
    policy = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">"
    opened = open_page(page_file(GOOD.replace("<title>", policy + "<title>")))
    assert axe(opened.page) == []
    assert (opened.errors, len(opened.requests)) == ([], 1)


async def _three() -> int:
    return 3


@pytest.mark.usefixtures("window")
def test_an_event_loop_can_run_beside_the_browser() -> None:
    assert asyncio.run(_three()) == 3


def test_the_browser_works_after_another_event_loop(open_page: Open, page_file) -> None:
    assert open_page(page_file(GOOD)).page.title() == "Page"
