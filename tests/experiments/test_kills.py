"""The small form of experiments/faults/kills.py: real processes, killed or two at once in one folder."""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "experiments" / "faults"


def test_killed_and_paired_processes_lose_nothing(tmp_path: Path) -> None:
    asked = ["--kills", "6", "--pairs", "3", "--rounds", "80", "--results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, FOLDER / "kills.py", *asked], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "kills.json").read_text("utf-8"))
    assert not any(found["faults"].values()), found["details"]
    assert found["seen"]["kills"] >= 6
    assert found["seen"]["pairs"] == 3
    assert "| lost rounds | 0 |" in (tmp_path / "kills.md").read_text("utf-8")
