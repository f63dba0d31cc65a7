"""The HTML of the page: a saved report in one file, the live page, and the list of a folder's runs.

The scripts are the files `assets/page_*.js`, put together in one closed scope. A saved report allows exactly
two scripts, by their hashes: this one and plotly.
"""

import base64
import gzip
import hashlib
import html
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from steelyard.errors import InputError
from steelyard.texts import plain, to_json

SCRIPTS = (
    "text",
    "theme",
    "figure",
    "headline",
    "verdicts",
    "heatmap",
    "overlay",
    "cursor",
    "chosen",
    "model",
    "fairness",
    "traffic",
    "compare",
    "live",
    "list",
    "start",
)
"""The parts of the page's script, in order."""


def saved_document(data: Mapping[str, Any], title: str) -> str:
    """A report as one file that asks nothing of the network."""
    script = page_script()
    allowed = f"{_hash(script.encode())} {_hash(plotly_script())}"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    packed = _packed(to_json(data).encode())
    return _document(
        title,
        {"view": "saved"},
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        style=f"<style>{_asset('page.css')}</style>",
        scripts=(
            f'<script type="application/octet-stream" id="packed-data">{packed}</script>\n'
            f'<script type="application/octet-stream" id="packed-plotly">{_packed_plotly()}</script>\n'
            f"<script>{script}</script>"
        ),
    )


def live_document(title: str, base: str, events: str, nonce: str) -> str:
    """The page of a run that is followed: `events` is the address of its messages."""
    return _served(title, {"view": "live", "base": base, "events": events}, nonce, ("plotly.js", "page.js"))


def list_document(title: str, base: str, runs: str, nonce: str) -> str:
    """The list of a folder's runs: `runs` is the address of its JSON."""
    return _served(title, {"view": "list", "base": base, "runs": runs}, nonce, ("page.js",))


def _served(title: str, attributes: Mapping[str, str], nonce: str, scripts: tuple[str, ...]) -> str:
    base, secret = html.escape(attributes["base"]), html.escape(nonce)
    tags = [f'<script nonce="{secret}" src="{base}assets/{name}"></script>' for name in scripts]
    style = f'<link rel="stylesheet" href="{base}assets/page.css">'
    return _document(title, attributes, policy="", style=style, scripts="\n".join(tags))


def _document(title: str, attributes: Mapping[str, str], **parts: str) -> str:
    data = " ".join(f'data-{name}="{html.escape(value)}"' for name, value in attributes.items())
    return Template(_asset("page.html")).substitute(title=html.escape(plain(title)), attributes=data, **parts)


@cache
def page_script() -> str:
    """The page's own script. It must not contain what ends a script element."""
    return '(() => {\n"use strict";\n' + "\n".join(_asset(f"page_{name}.js") for name in SCRIPTS) + "})();\n"


@cache
def plotly_script() -> bytes:
    """plotly.js, from the Python package plotly: found without importing the package, which takes long."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise InputError("the page needs the package plotly: install it with `pip install plotly`.")
    return (Path(found.origin).parent / "package_data" / "plotly.min.js").read_bytes()


@cache
def _packed_plotly() -> str:
    return _packed(plotly_script())


@cache
def _asset(name: str) -> str:
    return (resources.files("steelyard.page") / "assets" / name).read_text(encoding="utf-8")


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()


def _hash(script: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


ASSETS: Mapping[str, Callable[[], bytes]] = {
    "plotly.js": plotly_script,
    "page.js": lambda: page_script().encode(),
    "page.css": lambda: _asset("page.css").encode(),
}
"""What the live page loads from its server, by name."""
