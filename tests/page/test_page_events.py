"""The live page: the events that follow a run."""

import asyncio
import shutil
import socket
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DEADLINE, Counter, events, events_url, record, served, wait_until

from steelyard.errors import InputError
from steelyard.page.feed import Feeds, Viewer
from steelyard.runs.writer import Recorder


def test_a_stream_begins_with_a_snapshot_and_goes_on_with_updates(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Recorder(path) as recorder:
        record(recorder, 1)
        with served(path) as page, events(events_url(page.url, path)) as messages:
            assert next(messages) == {"type": "snapshot", "data": {"done": 1}}
            record(recorder, 2)
            assert next(messages) == {"type": "update", "fields": {"done": 2}}
            record(recorder, 3)
            assert next(messages) == {"type": "update", "fields": {"done": 3}}


def test_every_browser_gets_its_own_snapshot_and_all_updates(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Recorder(path) as recorder, ExitStack() as stack:
        page = stack.enter_context(served(path))
        url = events_url(page.url, path)
        first = stack.enter_context(events(url))
        assert next(first)["data"] == {"done": 0}
        record(recorder, 1)
        assert next(first)["fields"] == {"done": 1}
        second = stack.enter_context(events(url))
        assert next(second)["data"] == {"done": 1}
        record(recorder, 2)
        assert next(first)["fields"] == next(second)["fields"] == {"done": 2}


def test_what_a_snapshot_for_one_browser_has_more_than_the_updates_goes_to_all(tmp_path: Path) -> None:
    path = tmp_path / "run"
    due: list[int] = []

    class Late(Counter):
        def snapshot(self) -> dict[str, Any]:
            for number in due:  # recorded just before the snapshot, and after the last update
                record(recorder, number)
            return super().snapshot()

    recorder = Recorder(path)
    recorder.record.close()
    recorder.record.database = sqlite3.connect(path / "record.sqlite", check_same_thread=False)
    with recorder, served(path, follow=Late) as page, ExitStack() as stack:
        first = stack.enter_context(events(events_url(page.url, path)))
        assert next(first)["data"] == {"done": 0}
        record(recorder, 1)
        assert next(first)["fields"] == {"done": 1}
        due.append(2)
        second = stack.enter_context(events(events_url(page.url, path)))
        assert next(second)["data"] == {"done": 2}
        due.clear()
        assert next(first)["data"] == {"done": 2}


def test_the_record_is_read_only_while_a_browser_is_connected(run: Path) -> None:
    made: list[Counter] = []

    def follow(path: Path) -> Counter:
        made.append(Counter(path))
        return made[-1]

    with served(run, follow=follow) as page:
        assert httpx.get(page.url).status_code == 200
        assert httpx.get(page.url + "runs.json").status_code == 200
        assert made == []
        with events(events_url(page.url, run)) as messages:
            next(messages)
            with events(events_url(page.url, run)) as others:
                next(others)
            assert len(made) == 1
            (feed,) = page.site.feeds._feeds.values()
        wait_until(lambda: not page.site.feeds._feeds)
        assert feed._task is None
        with events(events_url(page.url, run)) as messages:
            assert next(messages)["type"] == "snapshot"
        assert len(made) == 2


def test_a_connected_browser_does_not_keep_the_run_from_closing_its_record(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with served(path.parent) as page:
        with Recorder(path) as recorder:
            record(recorder, 1)
            stream = events(events_url(page.url, path))
            messages = stream.__enter__()
            next(messages)
        assert not (path / "record.sqlite-wal").exists()
        stream.__exit__(None, None, None)


def test_no_tasks_are_left_when_browsers_are_gone(run: Path) -> None:
    with served(run) as page:
        httpx.get(page.url)
        loop = page.servers[0].get_loop()
        before = len(asyncio.all_tasks(loop))
        for _ in range(5):
            with ExitStack() as stack:
                for _ in range(3):
                    next(stack.enter_context(events(events_url(page.url, run))))
        wait_until(lambda: len(asyncio.all_tasks(loop)) <= before)
        assert not page.site.feeds._feeds


def test_the_server_ends_at_once_although_streams_are_open(run: Path) -> None:
    with ExitStack() as stack:
        with served(run) as page:
            streams = [stack.enter_context(events(events_url(page.url, run))) for _ in range(3)]
            for stream in streams:
                next(stream)
            begin = time.monotonic()
            page.should_exit = True
            wait_until(lambda: not page.servers[0].is_serving())
            for stream in streams:
                assert list(stream) == []  # they end in order
        assert time.monotonic() - begin < 10


def test_a_browser_learns_what_was_recorded_last_before_the_server_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    for name in ("AFTER_CHANGE", "OTHERWISE"):
        monkeypatch.setattr(f"steelyard.page.feed.{name}", DEADLINE)  # no look at the record in between
    with Recorder(path) as recorder, served(path) as page, events(events_url(page.url, path)) as messages:
        assert next(messages)["data"] == {"done": 0}
        record(recorder, 1)
        page.end()
        assert [message["fields"] for message in messages] == [{"done": 1}]


def test_the_server_ends_although_a_browser_does_not_read(run: Path) -> None:
    class Large(Counter):
        def snapshot(self) -> dict[str, Any]:
            return {"type": "snapshot", "data": "x" * 50_000_000}

    with served(run, follow=Large) as page:
        host, port = page.url.split("/")[2].split(":")
        connection = socket.create_connection((host, int(port)))
        path = events_url(page.url, run).partition(f":{port}")[2]
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        connection.recv(100)
        wait_until(
            lambda: any(
                not viewer.behind for feed in page.site.feeds._feeds.values() for viewer in feed.viewers
            )
        )
    connection.close()


def test_after_a_restart_the_same_address_works(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Recorder(path) as recorder:
        record(recorder, 1)
        with served(path) as page, events(events_url(page.url, path)) as messages:
            assert next(messages)["data"] == {"done": 1}
            page.should_exit = True
            assert list(messages) == []
        record(recorder, 2)
        with served(path) as again:
            assert again.url == page.url
            assert again.note is None
            with events(events_url(page.url, path)) as messages:
                assert next(messages)["data"] == {"done": 2}


def test_a_browser_is_told_when_to_connect_again(run: Path) -> None:
    with served(run) as page, httpx.stream("GET", events_url(page.url, run)) as response:
        assert next(response.iter_lines()) == "retry: 2000"


def test_comments_keep_a_quiet_connection_alive(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.page.events.KEEP_ALIVE", 0.05)
    with served(run) as page, httpx.stream("GET", events_url(page.url, run), timeout=DEADLINE) as response:
        lines = response.iter_lines()
        assert any(line.startswith("data: ") for line in lines)
        assert any(line.startswith(":") for line in lines)


def test_a_browser_that_falls_behind_has_one_message_at_most_and_gets_a_snapshot() -> None:
    async def watch() -> None:
        viewer = Viewer(lambda: None)
        viewer.put_update(b"before the snapshot")
        viewer.put_snapshot(b"snapshot")
        assert await viewer.next() == b"snapshot"
        viewer.put_update(b"1")
        assert await viewer.next() == b"1"
        viewer.put_update(b"2")
        viewer.put_update(b"3")
        viewer.put_update(b"4")
        assert viewer.behind
        waiting = asyncio.create_task(viewer.next())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        viewer.put_snapshot(b"everything up to 4")
        assert await waiting == b"everything up to 4"
        viewer.put_snapshot(b"old")
        viewer.put_snapshot(b"new")
        assert await viewer.next() == b"new"

    asyncio.run(watch())


def test_a_slow_browser_does_not_hold_up_the_others_and_catches_up_with_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "run"
    padding = "x" * 3_000_000

    class Large(Counter):
        def snapshot(self) -> dict[str, Any]:
            return {**super().snapshot(), "padding": padding}

        def update(self) -> dict[str, Any] | None:
            message = super().update()
            return message and {**message, "padding": padding}

    with Recorder(path) as recorder, served(path, follow=Large) as page, ExitStack() as stack:
        url = events_url(page.url, path)
        slow, quick = stack.enter_context(events(url)), stack.enter_context(events(url))
        assert next(slow)["type"] == next(quick)["type"] == "snapshot"
        for number in range(1, 21):  # 60 MB, more than the buffers of a connection hold
            record(recorder, number)
            assert next(quick)["fields"] == {"done": number}
        seen = []
        while not seen or seen[-1].get("data", seen[-1].get("fields"))["done"] < 20:
            seen.append(next(slow))
        assert len(seen) < 20
        assert seen[-1]["type"] == "snapshot"


def test_a_record_that_cannot_be_read_for_a_while_is_read_later(run: Path) -> None:
    failures = iter([InputError("locked"), sqlite3.OperationalError("locked")])

    class Fails(Counter):
        def snapshot(self) -> dict[str, Any]:
            for error in failures:
                raise error
            return super().snapshot()

    with served(run, follow=Fails) as page, events(events_url(page.url, run)) as messages:
        assert next(messages)["data"] == {"done": 2}


def test_the_stream_ends_when_the_run_is_deleted_or_reading_fails(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Counter):
        def snapshot(self) -> dict[str, Any]:
            raise RuntimeError("a mistake in the program")

    with served(run, follow=Broken) as page, events(events_url(page.url, run)) as messages:
        assert list(messages) == []
    assert "a mistake in the program" in caplog.text
    with served(run.parent) as page, events(events_url(page.url, run)) as messages:
        next(messages)
        shutil.rmtree(run)
        assert list(messages) == []
        assert httpx.get(events_url(page.url, run)).status_code == 404


def test_a_stream_that_begins_after_the_end_ends_at_once(run: Path) -> None:
    async def watch() -> None:
        feeds = Feeds(Counter)
        await feeds.close()
        with feeds.viewer(run) as viewer:
            assert await viewer.next() is None

    asyncio.run(watch())
