"""The live page: its documents, and the list of runs."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from served import DEADLINE, events, events_url, record, served

from steelyard.errors import InputError
from steelyard.page import listing as listing_module
from steelyard.page.listing import Listing
from steelyard.runs.writer import Recorder


def test_the_page_of_a_run_shows_only_that_run(run: Path) -> None:
    with Recorder(run.parent / "second") as recorder:
        record(recorder, 1)
    with served(run) as page:
        assert httpx.get(page.url).text.count("/events") == 1
        assert events_url(page.url, run).partition("/run/")[2] in httpx.get(page.url).text
        assert httpx.get(page.url.removesuffix("/")).is_redirect
        assert httpx.get(page.url + "run/first/").status_code == 200
        assert httpx.get(page.url + "run/second/").status_code == 404
        assert httpx.get(page.url + "compare/?run=first&run=second").status_code == 404
        assert [row["key"] for row in httpx.get(page.url + "runs.json").json()["runs"]] == ["first"]


def test_the_page_of_a_folder_lists_its_runs_and_shows_each(run: Path) -> None:
    with Recorder(run.parent / "a b&c=d#é") as recorder:
        record(recorder, 1)
    with served(run.parent) as page:
        assert "runs.json" in httpx.get(page.url).text
        keys = [row["key"] for row in httpx.get(page.url + "runs.json").json()["runs"]]
        assert keys == ["first", "a b&c=d#é"]
        assert "a%20b%26c%3Dd%23%C3%A9/events" in httpx.get(page.url + "run/a%20b%26c%3Dd%23%C3%A9/").text
        with events(page.url + "run/a%20b%26c%3Dd%23%C3%A9/events") as messages:
            assert next(messages)["data"] == {"done": 1}


def test_reports_are_downloads_and_comparisons_are_documents_with_their_own_policy(run: Path) -> None:
    with Recorder(run.parent / "é") as recorder:
        record(recorder, 1)
    with served(run.parent) as page:
        report = httpx.get(page.url + "report/%C3%A9", timeout=DEADLINE)
        assert report.status_code == 200
        assert report.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A9.html"
        comparison = httpx.get(page.url + "compare/?run=first&run=%C3%A9&run=first", timeout=DEADLINE)
        assert comparison.status_code == 200
        policy = comparison.headers["content-security-policy"]
        assert policy.endswith("; frame-ancestors 'none'")
        assert "script-src" in policy
        assert policy.removesuffix("; frame-ancestors 'none'") in comparison.text
        assert httpx.get(page.url + "compare/").status_code == 404


def test_assets(run: Path) -> None:
    with served(run) as page:
        for name, kind in (
            ("page.js", "text/javascript"),
            ("plotly.js", "text/javascript"),
            ("page.css", "text/css"),
        ):
            answer = httpx.get(f"{page.url}assets/{name}")
            assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
            assert answer.content
        assert httpx.get(f"{page.url}assets/page.py").status_code == 404


def test_a_row_of_the_list(run: Path) -> None:
    (row,) = Listing(run.parent).rows()
    assert row.pop("started").startswith("20")
    assert row == {
        "key": "first",
        "name": "first name",
        "about": "",
        "status": "finished",
        "error": None,
        "done": 2,
        "planned": 5,
        "score": 0.75,
        "score_name": "accuracy",
        "rule": "majority",
        "seed": 3,
        "seconds": 1.5,
    }


def test_broken_runs_are_rows_and_half_made_ones_are_not(run: Path) -> None:
    folder = run.parent
    for name in ("a", "b", "c", "d", ".new-1"):
        shutil.copytree(run, folder / name)
    (folder / "a" / "record.sqlite").write_bytes(b"not a database" * 100)
    (folder / "b" / "spec.toml").write_text("[")
    (folder / "c" / "record.sqlite").write_bytes(b"")
    with closing(sqlite3.connect(folder / "d" / "record.sqlite")) as database, database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'name'", (b"\xff",))
    (folder / "empty").mkdir()
    rows = {row["key"]: row["status"] for row in Listing(folder).rows()}
    assert rows == {
        "first": "finished",
        "a": "unreadable",
        "b": "unreadable",
        "c": "unreadable",
        "d": "unreadable",
    }
    with served(folder) as page:
        assert len(httpx.get(page.url + "runs.json").json()["runs"]) == 5


def test_only_runs_that_have_changed_are_read_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = listing_module.row_of
    monkeypatch.setattr(listing_module, "row_of", lambda path: read.append(path.name) or real(path))
    shown = Listing(run.parent)
    with Recorder(run.parent / "going") as recorder:
        assert [row["done"] for row in shown.rows()] == [0, 2]
        shown.rows()
        assert sorted(read) == ["first", "going"]
        record(recorder, 1)
        assert [row["done"] for row in shown.rows()] == [1, 2]
        assert read[2:] == ["going"]
    shutil.rmtree(run)
    assert [row["status"] for row in shown.rows()] == ["finished"]
    assert list(shown._rows) == ["going"]


def test_what_is_neither_a_run_nor_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(InputError, match="neither a recorded run nor a folder"):
            Listing(path)
    assert Listing(tmp_path).rows() == []
