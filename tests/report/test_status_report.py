"""The table of a deployment's sites."""

import io
import time

import pytest
from rich.cells import cell_len
from rich.console import ConsoleDimensions

from steelyard.flower.status import SiteStatus, Status
from steelyard.report.console import SafeConsole
from steelyard.report.deployment import MAX_SITES, status_report


def shown(status: Status, size: ConsoleDimensions | None = None) -> list[str]:
    console = SafeConsole(file=io.StringIO(), width=size.width if size else 80, color_system=None)
    console.print(status_report(status, size))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def example(phase: str = "running") -> Status:
    now = time.time()
    sites = {
        "turin": SiteStatus(True, True, now, waiting=True, answered=3, weight=0.25, last_answer="used"),
        "oslo": SiteStatus(True, True, now, answered=4, weight=0.75, last_answer="used"),
        "lyon": SiteStatus(True, seen=now - 300, last_answer="failed: [red]no[/] \x1b[2J"),
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


def a_thousand() -> Status:
    now = time.time()
    fine = SiteStatus(True, True, now, waiting=True, answered=1203, weight=0.001, last_answer="used")
    sites = {f"hospital-{number:04}": fine for number in range(998)}
    reason = "failed while training: out of memory\n\x1b[2J" + "long " * 100
    sites["hospital-late"] = SiteStatus(True, False, now - 7000, answered=3, weight=0.0, last_answer=reason)
    sites["漢字" * 100] = SiteStatus()
    return Status("many " * 20, "running", 1204, 2000, run="/" + "folder/" * 50, sites=sites)


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (100, 12), (80, 3)])
def test_a_thousand_sites_fit_into_a_terminal(size: tuple[int, int]) -> None:
    width, height = size
    lines = shown(a_thousand(), ConsoleDimensions(width, height))
    assert len(lines) <= max(height, 8)
    assert all(cell_len(line) <= width for line in lines)
    rows = lines[3:-2]
    assert rows[-1] == f"and {1000 - len(rows) + 1} more"
    assert all("round 1203  0.001" in row for row in rows[2:-1])
    assert " ".join(rows[0].split()).startswith(
        "hospital-late not connected 117 min ago round 3 0.000 failed"
    )
    assert lines[0].endswith("running; 1204 of 2000 rounds are complete")


def test_sites_with_a_problem_come_first_if_not_all_fit() -> None:
    first, second, third = shown(a_thousand(), ConsoleDimensions(200, 24))[3:6]
    assert first.startswith("hospital-late ")
    assert "failed while training: out of memory long long" in first
    assert second.startswith("漢字")
    assert third.startswith("hospital-0000 ")


def test_a_report_that_is_not_live_has_whole_reasons() -> None:
    assert "long" * 100 in "".join("".join(shown(a_thousand())).split())
