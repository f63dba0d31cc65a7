"""A deployment in a terminal: its sites, and what became of their last answers."""

import time

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from steelyard.flower.status import SiteStatus, Status
from steelyard.texts import plain

BAR = 10
MAX_SITES = 40
OVER = ("finished", "stopped", "not running")
"""Phases in which no site can be connected."""


def status_report(status: Status) -> RenderableType:
    """How far the run is, one row for each site, and where the run is recorded."""
    phase = f"{status.phase}; {status.round} of {status.rounds} rounds are complete"
    title = Text.assemble((status.deployment, "bold"), (f"  {phase}", "dim"))
    place = Text.assemble(("recorded in  ", "dim"), status.run, no_wrap=True, overflow="ignore")
    return Group(title, Text(), _sites(status), Text(), *([place] if status.run else []))


def _sites(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("site", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("last seen", justify="right", no_wrap=True)
    table.add_column("answered", justify="right", no_wrap=True)
    table.add_column("weight", no_wrap=True)
    table.add_column("last answer", overflow="fold")
    sites = sorted(status.sites.items())
    heaviest = max((site.weight or 0.0 for _, site in sites), default=0.0) or 1.0
    for name, site in sites[:MAX_SITES]:
        answered = f"round {site.answered}" if site.answered else ""
        weight = Text() if site.weight is None else _weight(site.weight, heaviest)
        verdict = Text(plain(site.verdict).strip(), style="" if site.verdict == "used" else "red")
        state = _state(site, status.phase in OVER)
        table.add_row(Text(name), state, Text(_ago(site.seen)), Text(answered), weight, verdict)
    if len(sites) > MAX_SITES:
        table.add_row(Text(f"and {len(sites) - MAX_SITES} more", style="dim"))
    return table


def _weight(weight: float, heaviest: float) -> Text:
    length = max(0, round(BAR * weight / heaviest))
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
