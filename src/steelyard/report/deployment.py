"""A deployment in a terminal: its sites, and what became of their last answers."""

import time

from rich.console import ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from steelyard.flower.status import SiteStatus, Status
from steelyard.report.live_figures import WIDE, shortened
from steelyard.texts import plain

BAR, SHORT_BAR = 10, 3
MAX_SITES = 40
MAX_NAME = 16
OTHER_LINES = 8
"""Title, headings, the number of further sites, the folder, two empty lines, and two lines of the log."""
OVER = ("finished", "stopped", "not running")
"""Phases in which no site can be connected."""


def status_report(status: Status, size: ConsoleDimensions | None = None) -> RenderableType:
    """How far the run is, one row for each site, and where the run is recorded.

    With the `size` of a terminal it fits into it: long texts are cut, and the remaining sites counted.
    """
    phase = f"{status.phase}; {status.round} of {status.rounds} rounds are complete"
    title = Text.assemble((shortened(status.deployment, 24), "bold"), (f"  {phase}", "dim"))
    place = Text.assemble(("recorded in  ", "dim"), status.run, no_wrap=True)
    place.overflow = "ignore" if size is None else "ellipsis"
    return Group(title, Text(), _sites(status, size), Text(), *([place] if status.run else []))


def _sites(status: Status, size: ConsoleDimensions | None) -> Table:
    fits = size is not None
    rows = MAX_SITES if size is None else max(size.height - OTHER_LINES, 1)
    bar = BAR if size is None or size.width >= WIDE else SHORT_BAR
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("site", overflow="fold", no_wrap=fits)
    table.add_column("state", no_wrap=True)
    table.add_column("last seen", justify="right", no_wrap=True)
    table.add_column("answered", justify="right", no_wrap=True)
    table.add_column("weight", no_wrap=True)
    table.add_column("last answer", overflow="ellipsis" if fits else "fold")
    heaviest = max((site.weight or 0.0 for site in status.sites.values()), default=0.0) or 1.0
    for name, site in _first_sites(status, rows):
        label = Text(shortened(name, MAX_NAME) if fits else name)
        answered = f"round {site.answered}" if site.answered else ""
        weight = Text() if site.weight is None else _weight(site.weight, heaviest, bar)
        last_answer = Text(
            _one_line(site.last_answer), style="" if site.last_answer == "used" else "red", no_wrap=fits
        )
        state = _state(site, status.phase in OVER)
        table.add_row(label, state, Text(_ago(site.seen)), Text(answered), weight, last_answer)
    if len(status.sites) > rows:
        table.add_row(Text(f"and {len(status.sites) - rows} more", style="dim"))
    return table


def _one_line(text: str) -> str:
    return " ".join(plain(text).split())


def _first_sites(status: Status, rows: int) -> list[tuple[str, SiteStatus]]:
    """Sites in the order of their names; if not all have space, those that have a problem come first."""
    sites = sorted(status.sites.items())
    if len(sites) > rows:
        sites.sort(key=lambda item: _is_fine(item[1], status.phase in OVER))
    return sites[:rows]


def _is_fine(site: SiteStatus, is_over: bool) -> bool:
    return site.admitted and (site.connected or is_over) and site.last_answer in ("used", "")


def _weight(weight: float, heaviest: float, bar: int) -> Text:
    length = max(0, round(bar * weight / heaviest))
    return Text.assemble(f"{weight:.3f} ", ("━" * length, "cyan"))


def _state(site: SiteStatus, is_over: bool) -> Text:
    if not site.admitted:
        return Text("not admitted", style="yellow")
    if is_over:
        return Text("admitted")
    if not site.connected:
        return Text("not connected", style="red")
    return Text("working", style="cyan") if site.waiting else Text("connected", style="green")


def _ago(seen: float | None) -> str:
    if seen is None:
        return "never"
    seconds = max(0.0, time.time() - seen)
    if seconds < 2:
        return "now"
    for unit, length in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 120 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"
