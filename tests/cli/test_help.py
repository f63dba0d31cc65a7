"""Help that teaches."""

import itertools
import json
from typing import Any

import pytest
import typer
from calls import output, steelyard

from steelyard.cli import app
from steelyard.cli.catalogue import KINDS


def leaves(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command that does something, by the words that call it."""
    if not hasattr(command, "commands"):
        return {path: command}
    return {
        words: leaf
        for name, each in command.commands.items()
        for words, leaf in leaves(each, (*path, name)).items()
    }


COMMANDS = leaves(typer.main.get_command(app))


def test_the_commands_are_those_that_are_promised() -> None:
    top = {("run",), ("compare",), ("show",), ("calibration",), ("list",)}
    assert set(COMMANDS) >= top | {("data", name) for name in ("list", "get", "where", "show")}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_what_a_command_does_and_takes(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    text = " ".join(output(steelyard(*words, "--help")).split())
    assert (command.help or "").splitlines()[0] in text
    assert "--json" in text
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            assert parameter.metavar in text
    if words in {("run",), ("compare",), ("data", "show")}:
        assert f"Example{'s' * (words != ('data', 'show'))}:" in text
        assert f"steelyard {' '.join(words)} " in text.partition("Example")[2]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fills_the_lines_of_a_narrow_terminal(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line ends where the next word would not fit, and an example is one line."""
    monkeypatch.setenv("COLUMNS", "80")
    prose = output(steelyard(*words, "--help")).partition("╭")[0].partition("Usage:")[2]
    lines = [line.rstrip() for line in prose.splitlines()[1:]]
    for line, following in itertools.pairwise(lines):
        assert not line.startswith(" steelyard "), "an example that is not indented"
        if line.startswith("    "):
            assert not following or following.startswith("    "), "an example in two lines"
        elif line and following:
            assert len(f"{line} {following.split()[0]}") > 79, f"ragged: {line!r}"


def test_without_a_command_there_is_help() -> None:
    result = steelyard()
    text = result.stdout + result.stderr
    for name in ("run", "compare", "show", "list", "data"):
        assert f" {name} " in text


def test_paragraphs_are_wrapped_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    lines = [line.strip() for line in output(steelyard("grid", "--help")).splitlines()]
    start = next(place for place, line in enumerate(lines) if line.startswith("Every cell is"))
    end = lines.index("", start)
    assert all(len(line) > 50 for line in lines[start : end - 1])  # no line is broken where the source was
    assert 'preset = "fedavg"' in lines


def test_settings_and_where_they_are_listed_are_in_the_help() -> None:
    for words in ((), ("run",)):
        text = " ".join(output(steelyard(*words, "--help")).split())
        assert "steelyard spec" in text
        assert "steelyard list" in text


def test_list_alone_shows_the_kinds() -> None:
    lines = output(steelyard("list")).splitlines()
    assert all(any(line.startswith(f"{kind} ") for line in lines) for kind in KINDS)
    assert [each["name"] for each in json.loads(output(steelyard("list", "--json")))["kinds"]] == list(KINDS)
