"""`result.show()` prints what `steelyard show` prints."""

from pathlib import Path

import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard.report.console import SafeConsole
from steelyard.report.results import show_result
from steelyard.report.terminal import run_report
from steelyard.runs.summary import summarise


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def federation(regression: bool = False) -> sy.Federation:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 2, generator=draw)
    targets = inputs[:, :1] * 2 if regression else (inputs[:, 0] > 0).long()
    clients = {"oslo": (inputs[:20], targets[:20]), "turin": (inputs[20:], targets[20:])}
    algorithm = sy.Algorithm(objective=sy.objectives.SquaredError()) if regression else None
    return sy.Federation(
        clients, nn.Linear(2, 1 if regression else 2), algorithm, test=(inputs, targets), rounds=2
    )


def test_a_recorded_run_is_shown_as_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = sy.run("fedavg", out=tmp_path, rounds=2, **{"data.clients": 3})
    assert result.path is not None
    result.show()
    shown = capsys.readouterr().out
    SafeConsole().print(run_report(summarise(sy.Run(result.path))), crop=False)
    assert shown == capsys.readouterr().out
    assert "recorded in" in shown


def test_a_run_in_memory_is_shown_without_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    federation().run().show()
    shown = capsys.readouterr().out
    assert shown.startswith("federation  Linear · 2 clients\n2 rounds\n")
    assert "mean weight" in shown
    assert "oslo counted for 50 %" in shown
    assert "test accuracy" in shown
    assert "recorded in" not in shown


def test_what_is_wrong_is_shown_below(capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    show_result(
        replace(federation().run(), warnings=("the model is not finite.",), notices=("oslo failed.",))
    )
    assert capsys.readouterr().out.endswith("warning: the model is not finite.\nwarning: oslo failed.\n")
