"""Every example is short and runs as a user would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 80
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


def test_the_deployment_runs(tmp_path: Path) -> None:
    test_example_runs(FOLDER / "deployment" / "run_here.py", tmp_path)


def test_there_is_an_example_for_each_door() -> None:
    text = "".join(path.read_text("utf-8") for path in EXAMPLES)
    assert all(door in text for door in ("sy.run(", "sy.Federation(", "sy.weigh(", "sy.combine("))
