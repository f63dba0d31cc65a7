"""Texts for the record and the terminal are one printable line of limited length."""

from typing import Any

import pytest
from hostile_objects import Exiting, Raising, Rude, Text

from steelyard.server.reasons import MAX_REASON, kind, one_line, shown


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("", ""),
        ("one\ntwo\r\n\tthree", "one two three"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x9b31mred", "red"),
        ("a\0b\x7fc", "a b c"),
        ("\ud800x", "x"),
        ("\u202eabc\u200b", "abc"),
        ("日本 ü", "日本 ü"),
        (None, "(nothing in place of a text)"),
        (7, "(int in place of a text)"),
    ],
)
def test_a_text_becomes_one_printable_line(text: Any, line: str) -> None:
    assert one_line(text) == line


def test_objects_in_place_of_a_text_are_named_without_running_their_code() -> None:
    for text in (Text("x"), Rude(), Raising(), Exiting()):
        assert one_line(text) in [
            f"({name} in place of a text)" for name in ("Text", "Rude", "Raising", "Exiting")
        ]


def test_long_texts_are_cut() -> None:
    for text in ("x" * 10**6, "\x1b[31m" * 10**5, "\n" * 10**6 + "x", "y\n" * 10**5):
        assert len(one_line(text)) <= MAX_REASON
    assert one_line("x" * 301).endswith("x…")
    assert one_line("x" * 300) == "x" * 300


def test_values_are_shown_without_running_their_code() -> None:
    assert shown(10**5000) == "a number of 16,610 bits"
    assert shown(-3) == "-3"
    assert (shown(True), shown(0.5), shown(None)) == ("True", "0.5", "nothing")
    assert (kind(Exiting()), shown(Raising())) == ("Exiting", "Raising")
