"""What the library logs, and that it is quiet unless a program asks for it."""

import logging
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import steelyard as sy
from steelyard.server import logs
from steelyard.server.logs import MAX_REJECTED, log_round
from steelyard.types import Round

SMALL = {"data.clients": 3, "training.steps": 1}
NAME = "fedavg+rounds=2+data.clients=3+training.steps=1"


def messages(caplog: pytest.LogCaptureFixture, name: str = "steelyard") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith(name)]


def test_every_round_is_a_line_with_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "steelyard"):
        result = sy.run("fedavg", out=None, rounds=2, **SMALL)
    rounds = messages(caplog, "steelyard.server")
    assert len(rounds) == 2
    assert rounds[1].startswith(f"round 2: 3 used, 0 rejected, accuracy {result.accuracy:.4f}, loss ")
    assert messages(caplog, "steelyard.runs") == [f"{NAME} begins: 2 rounds, not recorded"]


def test_clients_that_were_not_used_are_named_with_the_reason_on_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows: list[dict[str, Any]] = [
        {"client": "evil\nround 9: 0 used", "status": "sent \x1b[31mnothing\nat all"},
        {"client": "idle one", "status": "idle"},
        {"client": "good one", "status": "used"},
    ]
    with caplog.at_level(logging.INFO, "steelyard"):
        log_round(Round(1, {"used": 1.0, "rejected": 1.0, "mse": 0.5}, tuple(rows)))
    assert messages(caplog) == [
        "round 1: 1 used, 1 rejected, mse 0.5000",
        "round 1: the reply of evil round 9: 0 used was not used: sent nothing at all",
    ]


def test_a_crowd_that_was_not_used_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    rows = tuple({"client": str(number), "status": "late"} for number in range(1000))
    with caplog.at_level(logging.INFO, "steelyard"):
        log_round(Round(1, {"used": 0.0, "rejected": 1000.0}, rows))
    assert len(messages(caplog)) == 2 + MAX_REJECTED
    assert messages(caplog)[-1] == f"round 1: and those of {1000 - MAX_REJECTED} other clients"


def test_nothing_is_made_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: object) -> str:
        raise AssertionError("made for nothing")

    monkeypatch.setattr(logs, "one_line", fail)
    log_round(Round(1, {"used": 0.0}, ({"client": "a", "status": "late"},)))


def test_saved_states_and_a_resumed_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def stop(round: Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sy.run("fedavg", stop, out=tmp_path, rounds=2, **SMALL)
    (path,) = tmp_path.iterdir()
    with caplog.at_level(logging.DEBUG, "steelyard"):
        sy.resume(path)
    said = messages(caplog, "steelyard.runs")
    assert said[0].startswith(f"{NAME} goes on after round 1: 2 rounds, recorded in ")
    assert said[-1] == f"saved the state after round 2 in {path.resolve()}"
    levels = {record.levelno for record in caplog.records if "saved the state" in record.getMessage()}
    assert levels == {logging.DEBUG}


def test_the_choice_of_an_engine(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.engines.auto.cores", lambda: 2)
    with caplog.at_level(logging.INFO, "steelyard"):
        sy.run("fedavg", out=None, rounds=1, **SMALL)
    (said,) = messages(caplog, "steelyard.engines")
    assert said.startswith("engine: ")
    assert "a client takes" in said


def test_a_worker_that_is_replaced_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def kill(round: Round) -> None:
        if round.number == 1:
            for child in multiprocessing.active_children():
                child.kill()
                child.join()

    sy.run("fedavg", kill, out=None, rounds=2, engine={"name": "pool", "workers": 2}, **SMALL)
    found = [record for record in caplog.records if record.name == "steelyard.engines"]
    assert found
    assert all(record.levelno == logging.WARNING for record in found)
    assert "a new one takes its place" in found[0].getMessage()


def test_a_program_that_does_not_ask_sees_nothing() -> None:
    program = "import logging, steelyard; logging.getLogger('steelyard.engines').warning('not shown')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
