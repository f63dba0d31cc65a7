"""The command line as a process of its own."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import process

import steelyard as sy
from steelyard.runs.reader import Run


def test_run_without_arguments_shows_one_poisoned_federation_under_three_rules(place: Path) -> None:
    done = process("run")
    assert (done.returncode, done.stderr) == (0, "")
    assert [f"client-{number}" in done.stdout for number in range(10)] == [True] * 10
    runs = {path.name.partition("poisoned-")[2]: Run(path) for path in (place / "runs").iterdir()}
    assert set(runs) == {"samples-s0", "ivar-vb-s0", "majority-s0"}
    for run in runs.values():
        assert str(run.path.relative_to(place)) in done.stdout
        assert len(run.rounds) == 30
    accuracies = {name: run.rounds[-1]["accuracy"] for name, run in runs.items()}
    assert accuracies["samples-s0"] + 0.2 < min(accuracies["ivar-vb-s0"], accuracies["majority-s0"])
    lines = {line.rpartition("  no ")[0].strip(): line.split()[-3:] for line in done.stdout.splitlines()}
    assert lines["adversaries weigh least"] == ["no", "yes", "yes"]


def test_help_does_not_load_torch() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "steelyard", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert "steelyard run" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "steelyard.cli" in imported
    assert imported.isdisjoint({"torch", "numpy", "sklearn", "pydantic", "matplotlib"})


def test_a_users_module_is_found_in_the_current_folder_and_bad_input_ends_with_code_2() -> None:
    done = process("run", "model=mine_for_cli:three_classes")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: client 'client-0' has classes 0 to 9, but the model has only 3 outputs, for classes from 0 "
        "to 2.\n"
    )


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Undo that background processes of a shell ignore SIGINT, which child processes inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_control_c_keeps_the_finished_rounds_and_the_model(place: Path) -> None:
    command = [sys.executable, "-m", "steelyard", "run", "rounds=100000", "--out", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            wait_for_rounds(place / "out", 2)
            running.send_signal(signal.SIGINT)
            stdout, stderr = running.communicate(timeout=300)
        finally:
            running.kill()
    assert running.returncode == 130
    assert stdout == ""
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    (path,) = (place / "out").iterdir()
    numbers = [row["round"] for row in Run(path).rounds]
    assert len(numbers) >= 2
    assert numbers == list(range(1, len(numbers) + 1))
    assert Run(path).meta["status"] == "interrupted"
    assert sy.load_model(path)


def wait_for_rounds(out: Path, count: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        time.sleep(0.05)
        for path in out.glob("*/record.sqlite"):
            run = Run(path.parent)
            if run.is_readable() and len(run.rounds) >= count:
                return
    pytest.fail(f"no {count} rounds in 300 s")
