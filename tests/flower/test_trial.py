"""`steelyard deploy try`: real SuperLink, SuperNodes, keys and TLS, with the bits of the simulation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_same_bits import assert_same, simulated

from steelyard.runs.reader import Run
from steelyard.specs.building import build
from steelyard.specs.schema import load_spec


def test_a_trial_has_the_bits_of_the_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with private bodies, a sample of them in each round, and one that raises."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    base = {"data.clients": 3, "clients_per_round": 2, "rounds": 2, "engine": "serial"}
    sizes = {name: len(client.train) for name, client in build(load_spec("chfl", base)).clients.items()}
    words = [f"{key}={value}" for key, value in base.items()]
    words += ["objective=raising:Raising", f"objective.examples={sizes[min(sizes)]}", "objective.round=2"]
    words += ["observers=jsonlines"]
    command = [sys.executable, "-m", "steelyard", "deploy", "try", "chfl", *words, "--trust", "--json"]
    env = {**os.environ, "PYTHONPATH": here}
    done = subprocess.run(
        [*command, "--out", tmp_path / "trial"], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 2
    deployed = Run(next((tmp_path / "trial" / "runs").iterdir()))
    objective = {"name": "raising:Raising", "examples": sizes[min(sizes)], "round": 2}
    spec = load_spec("chfl", {**base, "objective": objective}, trust=True)
    assert_same(simulated(spec, tmp_path / "a"), deployed)
    told = [json.loads(line) for line in (deployed.path / "rounds.jsonl").read_text().splitlines()]
    assert [line["metrics"]["used"] for line in told] == [row["used"] for row in deployed.rounds]
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(tmp_path) not in left
