"""The live page: what its messages are made of."""

import json
from pathlib import Path
from typing import Any

from served import Counter, record

from steelyard.page.messages import Messages, encoded
from steelyard.runs.writer import Recorder


def test_messages_are_read_only_when_the_files_have_changed(tmp_path: Path) -> None:
    calls: list[str] = []

    class Watched(Counter):
        def update(self) -> dict[str, Any] | None:
            calls.append("update")
            return super().update()

        def snapshot(self) -> dict[str, Any]:
            calls.append("snapshot")
            return super().snapshot()

    with Recorder(tmp_path / "run") as recorder:
        messages = Messages(tmp_path / "run", Watched)
        assert messages.update() is None
        assert messages.snapshot() == (messages.snapshot()[0], True)
        for _ in range(3):
            assert messages.update() is None
        assert calls == ["snapshot", "update"]
        record(recorder, 1)
        assert messages.update() == ("update", encoded({"type": "update", "fields": {"done": 1}}))
        assert b'"done":1' in messages.snapshot()[0]
        assert calls == ["snapshot", "update", "update", "snapshot"]


def test_messages_are_one_line_of_ascii_and_valid_json() -> None:
    text = encoded({"id": "a\nb\r\n\u2028\ud800\0", "value": float("nan")})
    assert text.startswith(b"data: ")
    assert text.endswith(b"\n\n")
    assert len(text.splitlines()) == 2
    assert json.loads(text[6:]) == {"id": "a\nb\r\n\u2028\ud800\0", "value": None}
