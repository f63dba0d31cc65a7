"""The live page: a server on 127.0.0.1 that shows a run, or the runs of a folder, and changes nothing."""

import asyncio
import html
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from steelyard.errors import SteelyardError
from steelyard.page.address import Address, Opened, open_address
from steelyard.page.document import ASSETS, list_document, live_document, saved_document
from steelyard.page.events import EventStream
from steelyard.page.feed import Feeds, log
from steelyard.page.follower import Follower
from steelyard.page.listing import Listing
from steelyard.page.messages import Source
from steelyard.page.report import page_data
from steelyard.page.security import Guard, document_policy, new_nonce

TYPES = {".js": "text/javascript", ".css": "text/css"}
_META_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', re.IGNORECASE)


class Site:
    """What is at each address of the page."""

    def __init__(self, listing: Listing, address: Address, follow: Callable[[Path], Source]) -> None:
        self.listing, self.feeds = listing, Feeds(follow)
        self.address, self.base = address, f"/{address.token}/"

    def app(self) -> ASGIApp:
        routes = [
            Route("/", self.front),
            Route("/runs.json", self.runs),
            Route("/run/{name}/", self.run),
            Route("/run/{name}/events", self.events),
            Route("/compare/", self.compare),
            Route("/report/{name}", self.report),
            Route("/assets/{name}", self.asset),
        ]
        mounted = Mount(f"/{self.address.token}", routes=routes)
        inner = Starlette(routes=[mounted], exception_handlers={Exception: _failed})
        return Guard(inner, self.address.token, self.address.port)

    async def front(self, request: Request) -> Response:
        """The live page of the run, or the list of the folder's runs."""
        if self.listing.is_run:
            return self._live(self.listing.path)
        nonce = new_nonce()
        title = f"Runs in {self.listing.path.name}"
        return _document(
            list_document(title, self.base, f"{self.base}runs.json", nonce), document_policy(nonce)
        )

    async def runs(self, request: Request) -> Response:
        rows = await asyncio.to_thread(self.listing.rows)
        text = json.dumps({"folder": self.listing.path.name, "runs": rows})  # ASCII: names may be hostile
        return Response(text, media_type="application/json")

    async def run(self, request: Request) -> Response:
        return self._live(self._find(request.path_params["name"]))

    async def events(self, request: Request) -> Response:
        return EventStream(self.feeds, self._find(request.path_params["name"]))

    async def compare(self, request: Request) -> Response:
        """Several runs side by side, as they are now."""
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if not names:
            raise HTTPException(404)
        document = await self._saved([self._find(name) for name in names], ", ".join(names))
        return _document(document, saved_policy(document))

    async def report(self, request: Request) -> Response:
        """The saved report of a run, as a file."""
        path = self._find(request.path_params["name"])
        name = quote(f"{path.name}.html", safe="")
        response = HTMLResponse(await self._saved([path], path.name))
        response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
        return response

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            raise HTTPException(404)
        kind = TYPES.get(Path(name).suffix, "application/octet-stream")
        return Response(await asyncio.to_thread(ASSETS[name]), media_type=kind)

    def _find(self, name: str) -> Path:
        path = self.listing.find(name)
        if path is None:
            raise HTTPException(404)
        return path

    def _live(self, path: Path) -> Response:
        nonce, events = new_nonce(), f"{self.base}run/{quote(path.name, safe='')}/events"
        return _document(live_document(path.name, self.base, events, nonce), document_policy(nonce))

    async def _saved(self, paths: list[Path], title: str) -> str:
        try:
            return await asyncio.to_thread(lambda: saved_document(page_data(paths), title))
        except SteelyardError as error:
            raise HTTPException(409, str(error)) from None


def saved_policy(document: str) -> str:
    """The policy that a saved report brings with it in its head; it may not be shown in a frame either."""
    found = _META_POLICY.search(document)
    own = html.unescape(found[1]) if found else "default-src 'none'"
    return f"{own.rstrip('; ')}; frame-ancestors 'none'"


def _document(text: str, policy: str) -> Response:
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


async def _failed(request: Request, error: Exception) -> Response:
    log.error("the page could not be made", exc_info=error)
    return Response(
        "This page could not be made: the terminal has the error.\n", 500, media_type="text/plain"
    )


class PageServer(uvicorn.Server):
    """Serves a page at a socket until it is asked to end; open streams do not hold it up."""

    def __init__(self, site: Site, opened: Opened) -> None:
        config = uvicorn.Config(
            site.app(),
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,  # it would contain the token
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self.site, self.url, self.note = site, opened.address.url, opened.note
        self._listening = opened.socket

    def serve_until_asked(self) -> None:
        """Until `should_exit` is set, or a signal comes, which is then raised again."""
        self.run([self._listening])

    def end(self) -> None:
        """Ask it to end, from any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.site.feeds.close()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # to browsers that do not read
            connection.transport.abort()
        await asyncio.sleep(0)


def open_page(path: Path, port: int | None = None, follow: Callable[[Path], Source] = Follower) -> PageServer:
    """A server for the page of a run or folder. It can be reached at once, and answers when it runs."""
    listing = Listing(path)
    opened = open_address(listing.path, port)
    return PageServer(Site(listing, opened.address, follow), opened)
