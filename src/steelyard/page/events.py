"""The stream of a run's messages to one browser: server-sent events."""

import asyncio
from contextlib import suppress
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from steelyard.page.feed import Feeds

KEEP_ALIVE = 15.0
"""Seconds after which a comment is sent, if there is no message."""
RETRY = b"retry: 2000\n\n"
"""A browser that lost the connection tries again after this many milliseconds."""


class EventStream(Response):
    """Sends a snapshot, then updates, until the browser leaves or the server ends."""

    media_type = "text/event-stream"

    def __init__(self, feeds: Feeds, path: Path) -> None:
        super().__init__()
        self.feeds, self.path = feeds, path
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
            return
        stream = asyncio.create_task(self._stream(send))
        left = asyncio.create_task(_until_left(receive))
        try:
            await asyncio.wait({stream, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stream, left):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": RETRY, "more_body": True})
        with self.feeds.viewer(self.path) as viewer:
            while True:
                try:
                    message = await asyncio.wait_for(viewer.next(), KEEP_ALIVE)
                except TimeoutError:
                    message = b": still here\n\n"
                if message is None:
                    break
                await send({"type": "http.response.body", "body": message, "more_body": True})
        await send({"type": "http.response.body"})


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
