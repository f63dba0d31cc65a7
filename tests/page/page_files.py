"""Pages in files, with a stand-in for the server where they follow a run or list a folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from sample_data import HOSTILE, page, sample_run, widened

from steelyard.page.document import ASSETS, list_document, live_document, saved_document

FEED = "window.EventSource = class { constructor(url) { window.feed = this; this.url = url; } };"
LISTING = (
    "window.listing = {runs: []}; window.fetch = async (url) => {"
    " if (!window.listing) throw new Error('no answer');"
    " return {ok: true, text: async () => JSON.stringify(window.listing)}; };"
)
SAMPLES = {
    "two clients, one round": lambda: page(sample_run(2, 1)),
    "adversaries and posteriors": lambda: page(sample_run(10, 30, adversaries=3, posterior=True)),
    "missing evaluations": lambda: page(sample_run(8, 60, every=10)),
    "regression": lambda: page(sample_run(6, 30, task="regression")),
    "many clients": lambda: page(widened(sample_run(300, 100, adversaries=30), 16)),
    "hostile names": lambda: page(sample_run(rounds=12, names=HOSTILE, adversaries=4, name=HOSTILE[0])),
    "two runs": lambda: page(
        sample_run(10, 20, adversaries=3), sample_run(10, 30, adversaries=3, seed=1, rule="samples")
    ),
}


def saved(folder: Path, data: Mapping[str, Any], title: str = "A report") -> Path:
    path = folder / "report.html"
    path.write_text(saved_document(data, title), encoding="utf-8")
    return path


def followed(folder: Path) -> Path:
    """The live page; `send` gives it messages."""
    return _served(folder, live_document("A run", "", "events", "n"), FEED)


def listed(folder: Path) -> Path:
    """The list of runs; it reads `window.listing`."""
    return _served(folder, list_document("Runs in results", "", "runs.json", "n"), LISTING)


def _served(folder: Path, document: str, stand_in: str) -> Path:
    (folder / "assets").mkdir()
    for name, content in ASSETS.items():
        (folder / "assets" / name).write_bytes(content())
    path = folder / "index.html"
    path.write_text(document.replace("<head>", f"<head><script>{stand_in}</script>", 1), encoding="utf-8")
    return path


def send(shown: Page, message: Mapping[str, Any]) -> None:
    shown.evaluate("message => feed.onmessage({data: JSON.stringify(message)})", message)


def draw_all(shown: Page) -> int:
    """Scroll to every figure, until it is drawn; gives their number."""
    figures = shown.locator("figure:visible").all()
    for figure in figures:
        figure.scroll_into_view_if_needed()
        figure.locator(".main-svg").first.wait_for(state="attached")
    return len(figures)


def labels(shown: Page) -> list[str]:
    """The row labels of the heat map, from the top."""
    return shown.locator("#weights figure >> nth=0 >> .ytick text").all_text_contents()
