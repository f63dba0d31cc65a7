"""Help that teaches."""

from typing import Any

import pytest
import typer
from calls import output, steelyard

from steelyard.cli import app


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


def test_without_a_command_there_is_help() -> None:
    result = steelyard()
    text = result.stdout + result.stderr
    for name in ("run", "compare", "show", "list", "data"):
        assert f" {name} " in text
