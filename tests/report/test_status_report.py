"""The table of a deployment's sites."""

import io
import time

from steelyard.flower.status import SiteStatus, Status
from steelyard.report.console import SafeConsole
from steelyard.report.deployment import MAX_SITES, status_report


def shown(status: Status) -> list[str]:
    console = SafeConsole(file=io.StringIO(), width=80)
    console.print(status_report(status))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def example(phase: str = "running") -> Status:
    now = time.time()
    sites = {
        "turin": SiteStatus(True, True, now, waiting=True, answered=3, weight=0.25, verdict="used"),
        "oslo": SiteStatus(True, True, now, answered=4, weight=0.75, verdict="used"),
        "lyon": SiteStatus(True, seen=now - 300, verdict="failed: [red]no[/] \x1b[2J"),
        "bari": SiteStatus(),
    }
    return Status("hospitals", phase, 4, 20, run="runs/one", sites=sites)


def test_states_weights_and_reasons_are_shown_by_site() -> None:
    assert shown(example()) == [
        "hospitals  running; 4 of 20 rounds are complete",
        "",
        "site   state          last seen  answered  weight            last answer",
        "bari   not admitted       never",
        "lyon   not connected  5 min ago                              failed: [red]no[/]",
        "oslo   connected            now   round 4  0.750 ━━━━━━━━━━  used",
        "turin  working              now   round 3  0.250 ━━━         used",
        "",
        "recorded in  runs/one",
    ]


def test_nobody_is_connected_to_a_server_that_is_not_running() -> None:
    text = "\n".join(shown(example("stopped")))
    assert "admitted" in text
    assert not any(word in text for word in ("connected", "working"))


def test_many_sites_are_counted() -> None:
    sites = {f"site-{number:03}": SiteStatus() for number in range(MAX_SITES + 5)}
    assert "and 5 more" in shown(Status("many", sites=sites))
