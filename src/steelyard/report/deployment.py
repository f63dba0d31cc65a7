"""A deployment in a terminal: its sites, and what became of their last answers."""

import time

from rich.markup import escape
from rich.table import Table

from steelyard.flower.status import SiteStatus, Status


def status_table(status: Status) -> Table:
    """One row for each site."""
    table = Table(
        title=f"{escape(status.deployment)}: {status.phase}, round {status.round} of {status.rounds}",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for heading, justify in (
        ("site", "left"),
        ("connection", "left"),
        ("last seen", "right"),
        ("round", "right"),
        ("weight", "right"),
        ("last answer", "left"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for name, site in sorted(status.sites.items()):
        weight = "" if site.weight is None else f"{site.weight:.3f}"
        answered = str(site.answered) if site.answered else ""
        table.add_row(escape(name), _connection(site), _ago(site.seen), answered, weight, _verdict(site))
    return table


def _connection(site: SiteStatus) -> str:
    if not site.admitted:
        return "[yellow]not admitted[/]"
    if not site.connected:
        return "[red]missing[/]"
    return "working" if site.waiting else "[green]connected[/]"


def _verdict(site: SiteStatus) -> str:
    return escape(site.verdict) if site.verdict in ("", "used") else f"[red]{escape(site.verdict)}[/]"


def _ago(seen: float | None) -> str:
    if seen is None:
        return "never"
    seconds = max(0.0, time.time() - seen)
    if seconds < 2:
        return "now"
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"
