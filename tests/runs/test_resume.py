"""A run survives being killed: resumed, it ends with the same bits as one that never was."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from crashes import assert_same, copy_at

import steelyard as sy
from steelyard.errors import InputError
from steelyard.runs import writer as record
from steelyard.runs.folder import MODEL, state_path, states_in
from steelyard.runs.reader import Run, runs_in
from steelyard.runs.state_file import load_state, save_state
from steelyard.runs.writer import Recorder
from steelyard.server.aggregation import ServerState
from steelyard.server.state import FederationState
from steelyard.types import Message, Round

SPEC = {
    "rounds": 12,
    "clients_per_round": 3,
    "data": {"clients": 5},
    "server": {"momentum": 0.5},
    "evaluate_every": 2,
    "validation": 0.2,
    "patience": 50,
}


class BreakOffError(Exception):
    """Something that ends a run in the middle."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, BreakOffError])
@pytest.mark.parametrize("saved", ["every round", "once"])
def test_a_run_that_broke_off_ends_as_if_nothing_had_happened(
    error: type[BaseException], saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(round: Round) -> None:
        if round.number == 7:
            raise error

    wanted = sy.run(SPEC, out=tmp_path / "whole")
    if saved == "every round":
        monkeypatch.setattr(record, "STATE_SECONDS", 0.0)
    with pytest.raises(error):
        sy.run(SPEC, break_off, out=tmp_path / "broken")
    (broken,) = runs_in(tmp_path / "broken")
    assert len(broken.rounds) == 7
    numbers: list[int] = []
    found = sy.resume(broken.path, lambda round: numbers.append(round.number))
    assert numbers == [8, 9, 10, 11, 12]
    assert wanted.path is not None
    assert_same(broken.path, wanted.path)
    assert len(found.history) == 12
    assert found.accuracy == wanted.accuracy
    assert broken.meta["status"] == "finished"
    assert "error" not in broken.meta


def test_the_usual_length_of_updates_is_remembered_over_a_break(tmp_path: Path) -> None:
    """One of five sends updates that are too long: how much of them is used hangs on all rounds so far."""
    clipped = {
        **SPEC,
        "server": {"clip": "usual"},
        "adversaries": {"count": 1, "attack": {"name": "scaled", "scale": 20.0}},
    }

    def break_off(round: Round) -> None:
        if round.number == 7:
            raise BreakOffError

    wanted, free = (
        sy.run(clipped, out=tmp_path / "whole"),
        sy.run({**clipped, "server": {}}, out=tmp_path / "free"),
    )
    with pytest.raises(BreakOffError):
        sy.run(clipped, break_off, out=tmp_path / "broken")
    (broken,) = runs_in(tmp_path / "broken")
    sy.resume(broken.path)
    assert wanted.path is not None
    assert free.path is not None
    assert_same(broken.path, wanted.path)
    assert (free.path / MODEL).read_bytes() != (wanted.path / MODEL).read_bytes(), "something was clipped"
    medians = [load_state(state_path(path, 12)).server.medians for path in (broken.path, wanted.path)]
    assert medians[0] is not None
    assert medians[1] is not None
    assert len(medians[0]) == 12
    assert torch.equal(medians[0], medians[1])


def test_rounds_after_the_saved_state_are_run_again_to_the_same_bits(tmp_path: Path) -> None:
    observer = copy_at(9, tmp_path / "whole", tmp_path / "crashed")
    wanted = sy.run(SPEC, observer, out=tmp_path / "whole")
    assert wanted.path is not None
    assert list(states_in(tmp_path / "crashed")) == [1], "no state was saved within two seconds"
    assert len(Run(tmp_path / "crashed").rounds) == 9
    sy.resume(tmp_path / "crashed")
    assert_same(tmp_path / "crashed", wanted.path)


def test_a_run_killed_before_any_state_was_saved_starts_again(tmp_path: Path) -> None:
    observer = copy_at(3, tmp_path / "whole", tmp_path / "crashed")
    wanted = sy.run(SPEC, observer, out=tmp_path / "whole")
    assert wanted.path is not None
    state_path(tmp_path / "crashed", 1).unlink()
    sy.resume(tmp_path / "crashed")
    assert_same(tmp_path / "crashed", wanted.path)


def test_resuming_a_finished_run_reads_it_and_changes_nothing(tmp_path: Path) -> None:
    wanted = sy.run(SPEC, out=tmp_path)
    assert wanted.path is not None
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in wanted.path.rglob("*")}
    numbers: list[int] = []
    found = sy.resume(wanted.path, lambda round: numbers.append(round.number))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in wanted.path.rglob("*")} == before
    assert numbers == []
    assert found.accuracy == wanted.accuracy
    assert len(found.clients) == len(wanted.clients)
    weights = found.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in wanted.model.state_dict().items())
    assert found.path == wanted.path


def test_kill_9_and_resume_on_the_command_line(tmp_path: Path) -> None:
    words = ["rounds=200", "data.clients=4", "training.steps=3"]
    command = [sys.executable, "-m", "steelyard"]
    process = subprocess.Popen([*command, "run", *words, "--out", "killed"], cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not ((runs := runs_in(tmp_path / "killed")) and len(runs[0].rounds) > 3):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (killed,) = runs_in(tmp_path / "killed")
    assert killed.meta["status"] == "running"
    assert 3 < len(killed.rounds) < 200
    done = subprocess.run(
        [*command, "resume", killed.path, "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    spec = {"rounds": 200, "data": {"clients": 4}, "training": {"steps": 3}}
    wanted = sy.run(spec, out=tmp_path / "whole")
    assert wanted.path is not None
    assert_same(killed.path, wanted.path)


def test_every_part_of_a_state_survives_the_disk(tmp_path: Path) -> None:
    message = Message(torch.randn(5), torch.rand(5))
    weighing = {"momentum": torch.randn(5), "cosines/a b/ü": torch.randn(3, dtype=torch.float64)}
    average, medians = Message(torch.randn(5), torch.rand(5)), torch.rand(4, dtype=torch.float64)
    server = ServerState(message, weighing, torch.randn(5), average, medians)
    rows = ({"client": "a", "weight": 0.1 + 0.2, "status": "used"}, {"client": "b", "accuracy": None})
    pending = Round(7, {"loss": float("nan"), "used": 1.0}, rows, {"exchange": 0.5})
    best = Message(torch.randn(5), torch.rand(5))
    chosen = {"best": 0.1 + 0.2, "stale": 3, "monitor": "validation_nll", "best_round": 4, "best_model": best}
    save_state(FederationState(7, server, pending, **chosen), tmp_path / "state")  # type: ignore[arg-type]
    found = load_state(tmp_path / "state")
    assert (found.round, found.best, found.stale) == (7, 0.1 + 0.2, 3)
    assert (found.monitor, found.best_round) == ("validation_nll", 4)
    assert found.best_model is not None
    assert all(map(torch.equal, found.best_model, best))  # type: ignore[arg-type]
    assert torch.equal(found.server.message.mean, message.mean)
    assert found.server.message.variance is not None
    assert found.server.velocity is not None
    assert torch.equal(found.server.message.variance, message.variance)  # type: ignore[arg-type]
    assert torch.equal(found.server.velocity, server.velocity)  # type: ignore[arg-type]
    assert found.server.average is not None
    assert torch.equal(found.server.average.mean, average.mean)
    assert found.server.medians is not None
    assert found.server.medians.dtype == torch.float64
    assert torch.equal(found.server.medians, medians)
    assert found.server.weighing.keys() == weighing.keys()
    assert all(torch.equal(found.server.weighing[key], value) for key, value in weighing.items())
    assert found.pending is not None
    assert (found.pending.number, found.pending.clients) == (7, rows)
    assert found.pending.seconds == {"exchange": 0.5}
    assert found.pending.metrics["used"] == 1
    assert math.isnan(found.pending.metrics["loss"])
    first = FederationState(0, ServerState(message))
    save_state(first, tmp_path / "first")
    assert load_state(tmp_path / "first").best == float("-inf")
    assert load_state(tmp_path / "first").server.medians is None


def test_only_a_run_with_a_spec_can_be_resumed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "mine"):
        pass
    with pytest.raises(InputError, match=r"spec\.toml"):
        sy.resume(tmp_path / "mine")
    with pytest.raises(InputError, match="not a recorded run"):
        sy.resume(tmp_path / "nothing")
