"""Which requests the live page answers: those that know its token, sent by the user's own browser.

The server listens on 127.0.0.1, where every program and every web page that the user visits can send
requests. A web page cannot know the token. `Host` must be ours, so that a foreign name which resolves to
127.0.0.1 (DNS rebinding) is refused; `Origin` and `Sec-Fetch-Site` show requests that other pages make.
"""

import hmac
import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""The policy of answers that are not documents."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": NOTHING,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def new_nonce() -> str:
    return secrets.token_urlsafe(16)


def document_policy(nonce: str) -> str:
    """The Content-Security-Policy of a live document: only scripts with this nonce, data only from here."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
        "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def own_hosts(port: int) -> frozenset[str]:
    """The values of `Host` under which the page is reached."""
    return frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})


def refusal(headers: Headers, method: str, hosts: frozenset[str]) -> str | None:
    """Why a request that knows the token is still refused; None: it is answered."""
    host = ", ".join(headers.getlist("host"))
    if host not in hosts:
        return f"This page is only served as {' or '.join(sorted(hosts))}: use the same port on both sides."
    if any(origin != f"http://{host}" for origin in headers.getlist("origin")):
        return "Another web site may not read this page."
    sites = set(headers.getlist("sec-fetch-site"))
    if not sites <= {"same-origin", "none"} and not _opens_a_tab(headers, method):
        return "Another web site may not read this page."
    return None


def _opens_a_tab(headers: Headers, method: str) -> bool:
    """Whether the browser opens a link in a tab. The site with the link can neither read nor frame it."""
    mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest", "document")
    return method == "GET" and mode == "navigate" and target == "document"


class Guard:
    """Refuses requests before the application sees them, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token, self.hosts = app, token.encode(), own_hosts(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refuse(scope) or self.app)(scope, receive, send_secured)

    def _refuse(self, scope: Scope) -> Response | None:
        given = scope["path"].split("/")[1:2] or [""]
        if not hmac.compare_digest(given[0].encode("utf-8", "replace"), self.token):
            return Response(status_code=404)
        if reason := refusal(Headers(scope=scope), scope["method"], self.hosts):
            return Response(reason + "\n", 403, media_type="text/plain")
        if scope["method"] not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD"})
        return None
