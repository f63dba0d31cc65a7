"""The status of a server, as another process reads it."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steelyard.cli import app
from steelyard.errors import InputError
from steelyard.flower.status import STALE_SECONDS, SiteStatus, Status, read_status
from steelyard.runs.writer import Recorder
from steelyard.types import Round


def status() -> Status:
    return Status("fed", "running", 3, 20, sites={"oslo": SiteStatus(True), "bergen": SiteStatus()})


def test_a_status_comes_back_as_it_was(tmp_path: Path) -> None:
    path, written = tmp_path / "status.json", status()
    written.see(["oslo"], ["oslo", "bergen"])
    written.wait_for(["bergen"])
    written.write(path)
    assert read_status(path) == written
    assert written.missing == ["bergen"]
    assert written.sites["oslo"].seen == pytest.approx(time.time(), abs=60)
    assert written.sites["bergen"] == SiteStatus(admitted=True, waiting=True)
    assert [*tmp_path.iterdir()] == [path]


def test_a_site_that_has_gone_was_last_seen_when_it_was_there() -> None:
    found = status()
    found.see(["oslo"], [])
    seen = found.sites["oslo"].seen
    found.see([], [])
    assert (found.sites["oslo"].connected, found.sites["oslo"].seen) == (False, seen)


@pytest.mark.parametrize(
    ("phase", "age", "shown"),
    [
        ("running", 0.0, "running"),
        ("running", STALE_SECONDS + 5, "not running"),
        ("starting", STALE_SECONDS + 5, "not running"),
        ("finished", 1e6, "finished"),
        ("stopped", 1e6, "stopped"),
    ],
)
def test_a_status_that_nobody_updates_is_of_a_server_that_was_killed(
    tmp_path: Path, phase: str, age: float, shown: str
) -> None:
    path, written = tmp_path / "status.json", status()
    written.phase = phase
    written.write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "updated": time.time() - age}))
    assert read_status(path).phase == shown


def test_what_the_record_says_of_a_round_is_taken_over() -> None:
    found = status()
    rows = (
        {"client": "oslo", "status": "used", "weight": 0.5},
        {"client": "bergen", "status": "failed while answering: no answer within 5 s", "weight": 0.0},
        {"client": "nobody", "status": "used", "weight": 1.0},
    )
    found.complete(Round(4, {}, rows))
    assert found.round == 4
    oslo, bergen = found.sites["oslo"], found.sites["bergen"]
    assert (oslo.answered, oslo.weight, oslo.last_answer) == (4, 0.5, "used")
    assert (bergen.answered, bergen.weight) == (0, 0.0)
    assert bergen.last_answer.startswith("failed")
    found.complete(
        Round(5, {}, ({"client": "oslo", "status": "idle"}, {"client": "bergen", "status": "sent rubbish"}))
    )
    assert (oslo.answered, oslo.last_answer) == (4, "used"), "a site that was not asked keeps its last answer"
    assert (bergen.answered, bergen.weight) == (5, None)


def test_a_deployment_that_was_never_served_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was never served: `steelyard deploy serve"):
        read_status(tmp_path / "status.json")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"sites": []}', '{"sites": {}}', '{"sites": {"a": {"x": 1}}}', "\udcff"],
)
def test_a_damaged_status_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"cannot read .*status\.json"):
        read_status(path)


def test_the_status_says_why_sites_counted(tmp_path: Path) -> None:
    rows = (
        {"client": "oslo", "status": "used", "weight": 1.0},
        {"client": "bergen", "status": "sent rubbish", "weight": 0.0},
    )
    with Recorder(tmp_path / "run") as recorder:
        recorder(Round(1, {}, rows, {"evaluate": 0.0}))
    found = status()
    found.run, found.round = str(tmp_path / "run"), 1
    found.write(tmp_path / "status.json")
    shown = CliRunner().invoke(app, ["deploy", "status", str(tmp_path), "--json"])
    assert json.loads(shown.stdout)["verdicts"] == {
        "bergen": "bergen did not count: it was rejected in round 1: it sent rubbish.",
        "oslo": "oslo counted for 100 % (equal share 100 %).",
    }
    text = CliRunner().invoke(app, ["deploy", "status", str(tmp_path)]).stdout
    assert "bergen did not count: it was rejected in round 1" in " ".join(text.split())
