"""Names and texts of clients and files cannot control the terminal, and are not read as markup."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from calls import QUICK, output, steelyard
from rich.text import Text

import steelyard as sy
from steelyard.report.console import SafeConsole
from steelyard.texts import escaped, plain

CLEAR, TITLE, LINK = "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\"
HOSTILE = f"{CLEAR}{TITLE}[red]bad[/] \x9b31m\x07\x08\r\u202eevil {LINK}"
SAFE = "[red]bad[/] evil click"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

MODULE = f"""
from torch import nn

HOSTILE = {HOSTILE!r}


class Raises(nn.Sequential):
    def __init__(self, input_shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))

    def forward(self, inputs):
        if self.training:
            raise RuntimeError(HOSTILE)
        return super().forward(inputs)


def refuses(input_shape):
    raise ValueError(HOSTILE)
"""


@pytest.fixture
def module(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "hostile_for_cli.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "hostile_for_cli", raising=False)


@pytest.fixture
def hostile_run(place: Path) -> Path:
    """A run whose clients, one of which is rejected in every round, have names that are escape sequences."""

    class Breaks(torch.nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if self.training and torch.initial_seed() >= 0 and inputs.mean() > 5:
                raise RuntimeError(HOSTILE)
            return super().forward(inputs)

    labels = torch.tensor([0, 1, 0, 1])
    clients = {
        HOSTILE + "a": (torch.zeros(4, 3), labels),
        HOSTILE + "b": (torch.zeros(4, 3), labels),
        HOSTILE + "c": (torch.full((4, 3), 10.0), labels),
    }
    recorder = sy.Recorder(place / "hostile", meta={"name": HOSTILE})
    sy.Federation(clients, Breaks(3, 2), rounds=1).run(recorder=recorder)
    return place / "hostile"


def assert_clean(*texts: str) -> None:
    for text in texts:
        assert not CONTROL.search(text), ascii(text)


def test_sequences_and_control_characters_are_removed() -> None:
    assert plain(HOSTILE) == SAFE
    assert plain("ünïcödé 漢字 ± ━ \n\t") == "ünïcödé 漢字 ± ━ \n\t"
    assert plain("lone \ud800 surrogate") == "lone  surrogate"


def test_json_keeps_every_value() -> None:
    text = escaped(json.dumps({"name": HOSTILE}, ensure_ascii=False))
    assert_clean(text)
    assert json.loads(text) == {"name": HOSTILE}


def test_a_console_writes_text_as_it_is_in_every_kind_of_renderable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from rich.table import Table

    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE))
    table.add_row(HOSTILE)
    for renderable in (HOSTILE, Text(HOSTILE, "bold"), table):
        SafeConsole(width=200).print(renderable)
    shown = capsys.readouterr().out
    assert_clean(shown)
    assert shown.count("[red]bad[/]") == 7


def test_show_of_a_hostile_run(hostile_run: Path) -> None:
    text = output(steelyard("show", hostile_run))
    assert_clean(text)
    assert f"{SAFE}a" in text
    assert f"{SAFE}c" in text
    assert "did not count: it" in text
    as_json = output(steelyard("show", hostile_run, "--json"))
    assert_clean(as_json)


@pytest.mark.usefixtures("module")
def test_errors_of_hostile_code_and_names(place: Path) -> None:
    for words in (
        ("run", "model=hostile_for_cli:Raises", *QUICK),
        ("run", "model=hostile_for_cli:refuses", *QUICK),
        ("run", f"weighing={HOSTILE}"),
        ("run", f"{HOSTILE}.toml"),
        ("show", HOSTILE),
        ("resume", HOSTILE),
        ("calibration", HOSTILE),
        ("compare", "fedavg", HOSTILE),
        ("trust", HOSTILE),
        ("grid", "--rows", "model=hostile_for_cli:Raises", *QUICK, "--workers", 1),
    ):
        result = steelyard(*words)
        if not isinstance(result.exception, SystemExit):
            continue  # a traceback: none of ours
        assert result.exit_code != 0
        assert_clean(result.stdout, result.stderr)
        assert_clean(steelyard(*words, "--json").stdout)


@pytest.mark.usefixtures("module")
def test_a_grid_with_hostile_labels_and_reasons(place: Path) -> None:
    label = json.dumps(HOSTILE)
    (place / "grid.toml").write_text(
        "rounds = 1\ndata.clients = 2\ntraining.steps = 1\n"
        f"[grid.rows]\n{label} = {{ weighing = 'uniform' }}\n"
        "[grid.columns]\ngood = {}\nbad = { model = 'hostile_for_cli:Raises' }\n"
    )
    result = steelyard("grid", "grid.toml", "--trust", "--workers", 1, "--csv", "cells.csv", "--png", "a.png")
    assert result.exit_code == 1
    assert_clean(result.stdout, result.stderr, (place / "cells.csv").read_text())
    assert SAFE in result.stdout


def test_comparisons_and_calibrations_with_hostile_paths(place: Path, finished: Path) -> None:
    name = HOSTILE.replace("/", "")
    (place / name).symlink_to(finished)
    (place / f"{name}.toml").write_text("rounds = 1\ndata.clients = 2\ntraining.steps = 1\n")
    for words in (
        ("compare", f"{name}.toml", "--seeds", "0"),
        ("calibration", name, finished),
        ("show", name),
        ("data", "show", f"{name}.toml", "--png", f"{name}.png"),
        ("run", f"{name}.toml"),
        ("spec", f"{name}.toml"),
    ):
        assert_clean(output(steelyard(*words)))


def test_on_a_terminal_only_steelyards_own_styles_arrive(place: Path, hostile_run: Path) -> None:
    """Also in the title of a progress bar."""
    (place / "hostile.toml").write_text("rounds = 1\ndata.clients = 2\ntraining.steps = 1\n")
    (place / "run.py").write_text(
        "from steelyard.report.console import SafeConsole; from steelyard.report.progress import progress\n"
        f"name = {HOSTILE!r}\n"
        "with progress(SafeConsole(stderr=True), name, 3): pass\n"
        "SafeConsole().print(name)\n"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "run.py"], stdout=theirs, stderr=theirs, env=environment
    ) as running:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    assert running.returncode == 0
    text = shown.decode()
    assert "[red]bad[/]" in re.sub(r"\x1b\[[\d;]*m", "", text)
    for sequence in (CLEAR, TITLE, "\x1b]", "\x9b", "\x07", "\u202e"):
        assert sequence not in text
