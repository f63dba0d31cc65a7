"""`steelyard -v COMMAND`: the log on standard error, safe to print, and beside a progress bar."""

import io
import json
import logging
import sys
import tomllib
from pathlib import Path

import pytest
from calls import QUICK, output, steelyard
from rich.live import Live

import steelyard as sy
from steelyard.cli.verbosity import StderrHandler
from steelyard.report.console import SafeConsole
from steelyard.types import Round


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("steelyard.server", logging.INFO, "", 0, message, arguments, None)


def test_v_says_what_happens_and_vv_says_more() -> None:
    quiet, some, more = (steelyard(*words, "run", *QUICK, "--json") for words in ((), ("-v",), ("-vv",)))
    for result in (quiet, some, more):
        assert json.loads(output(result))["rounds"] == 2
    assert "info: " not in quiet.stderr
    assert "info: round 2: 3 used, 0 rejected, accuracy " in some.stderr
    assert "debug: " not in some.stderr
    assert "debug: saved the state after round 2 in " in more.stderr


def test_a_command_leaves_no_handler_behind() -> None:
    logger = logging.getLogger("steelyard")
    before = (list(logger.handlers), logger.level)
    output(steelyard("-vv", "list", "observers"))
    assert (list(logger.handlers), logger.level) == before


def test_a_message_is_one_line_that_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    StderrHandler().emit(record("round 1: %s", "\x1b[2Jevil\n[red]error: forged\u202e"))
    assert capsys.readouterr().err == "info: round 1: evil [red]error: forged\n"


def test_a_message_is_printed_above_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = SafeConsole(file=screen, force_terminal=True, width=80)
    before = sys.stderr
    with Live("the bar", console=console, auto_refresh=False, transient=True) as live:
        assert sys.stderr is not before
        live.refresh()
        screen.truncate(0)
        StderrHandler().emit(record("a message"))
    written = screen.getvalue()
    assert written.index("info: a message") < written.rindex("the bar")


def test_a_broken_standard_error_does_not_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    StderrHandler().emit(record("lost"))


def test_list_observers() -> None:
    found = json.loads(output(steelyard("list", "observers", "--json")))["observers"]
    assert [member["name"] for member in found] == ["csv", "jsonlines", "mlflow", "tensorboard"]
    assert all(member["about"] for member in found)


def test_an_observer_that_fails_is_a_warning_and_the_run_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, round: object) -> None:
        raise OSError("the disk is full \x1b[31m")

    monkeypatch.setattr("steelyard.observers.csv_files.CSV.__call__", fail)
    result = steelyard("run", *QUICK, "observers=csv", "--json")
    assert json.loads(output(result))["warning"] is None
    assert result.stderr.count("the observer CSV failed") == 1
    assert "\x1b" not in result.stderr


def test_a_resumed_run_starts_its_observers_again(tmp_path: Path) -> None:
    def stop(round: Round) -> None:
        raise KeyboardInterrupt

    settings = {"rounds": 2, "data.clients": 3, "training.steps": 2}
    with pytest.raises(KeyboardInterrupt):
        sy.run(None, stop, out="runs", observers=["jsonlines"], **settings)
    (path,) = (tmp_path / "runs").iterdir()
    output(steelyard("resume", path))
    lines = (path / "rounds.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2]


def test_a_spec_is_printed_with_its_observers() -> None:
    found = output(steelyard("spec", 'observers=["csv", {name = "jsonlines", path = "a.jsonl"}]'))
    assert tomllib.loads(found)["observers"] == [{"name": "csv"}, {"name": "jsonlines", "path": "a.jsonl"}]
