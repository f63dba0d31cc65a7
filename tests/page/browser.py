"""A headless Chromium for tests of pages. It records errors and requests, and reaches this machine only."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # other requests fail, but are recorded
)
AXE = Path(__file__).parents[2] / ".venv/axe/node_modules/axe-core/axe.min.js"
SEVERE = ("serious", "critical")


@dataclass(frozen=True)
class Opened:
    """A page in a browser, and what happened since it was opened."""

    page: Page
    errors: list[str] = field(default_factory=list)
    """Errors in the console and uncaught exceptions."""
    requests: list[str] = field(default_factory=list)
    """Addresses of all requests, the page's own included."""

    def outside(self, origin: str = "") -> list[str]:
        """Requests that left the page: not file:, data:, blob:, nor to `origin` ("http://127.0.0.1:8000")."""
        return [address for address in self.requests if not _is_inside(address, origin)]


def _is_inside(address: str, origin: str) -> bool:
    parts = urlsplit(address)
    if parts.scheme in ("file", "data", "blob", "about"):
        return True
    secure = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return bool(origin) and f"{secure}://{parts.netloc}" == origin.rstrip("/")


class Window:
    """One browser process. Pages can be opened inside `in_use()` only."""

    def __init__(self, browser: Browser, loop: asyncio.AbstractEventLoop) -> None:
        self.browser, self._loop = browser, loop
        self._contexts = ExitStack()

    @contextmanager
    def in_use(self) -> Iterator["Window"]:
        """Inside, this thread's running event loop is Playwright's. Outside, other tests can run theirs."""
        asyncio._set_running_loop(self._loop)
        try:
            with ExitStack() as self._contexts:
                yield self
        finally:
            asyncio._set_running_loop(None)

    def open(
        self,
        address: str | Path,
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        reduced_motion: bool = False,
        javascript: bool = True,
    ) -> Opened:
        """Open a file or an address with no cookies and no cache. It is closed at the end of the test."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if reduced_motion else "no-preference",
            java_script_enabled=javascript,
        )
        self._contexts.callback(context.close)
        opened = _recorded(context)
        opened.page.goto(address.absolute().as_uri() if isinstance(address, Path) else address)
        return opened


def _recorded(context: BrowserContext) -> Opened:
    opened = Opened(context.new_page())

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            opened.errors.append(message.text)

    context.on("console", on_console)
    context.on("weberror", lambda error: opened.errors.append(str(error.error)))
    context.on("request", lambda request: opened.requests.append(request.url))
    opened.page.on("websocket", lambda socket: opened.requests.append(socket.url))
    return opened


@contextmanager
def launched(program: str) -> Iterator[Window]:
    """Start the browser `program`, and end it."""
    with sync_playwright() as playwright:
        loop = asyncio.get_running_loop()
        try:
            browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
            asyncio._set_running_loop(None)
            yield Window(browser, loop)
        finally:
            asyncio._set_running_loop(loop)


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def find_axe() -> Path | None:
    path = Path(os.environ.get("STEELYARD_AXE", AXE))
    return path if path.is_file() else None


def severe_violations(page: Page, axe: Path) -> list[str]:
    """What axe-core finds that is serious or critical: the rule, what it says, and the elements."""
    page.evaluate(axe.read_text(encoding="utf-8"))  # not a script tag, which the page's own policy may refuse
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    return [
        f"{violation['id']} ({violation['impact']}): {violation['help']}: {node['target']}"
        for violation in found["violations"]
        if violation["impact"] in SEVERE
        for node in violation["nodes"]
    ]
