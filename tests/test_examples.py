"""Every example is short and runs as a user would run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
NUMBERS = {
    "dict_batches": [("test accuracy", 0.8)],
    "focal_loss": [("weighted, of torch   accuracy", 0.85), ("malignant tumours found", 0.8)],
    "load_in_another_program": [("loaded, last model, test accuracy", 0.8), ("recorded, test accuracy", 0.8)],
    "lora_with_peft": [("accuracy", 0.6)],
    "multi_label": [("test accuracy of a label", 0.9), ("of all ten", 0.4)],
    "own_metrics": [("validation F1", 0.85), ("test F1", 0.8)],
    "own_model_and_data": [("test accuracy", 0.9)],
    "own_resnet": [("test accuracy", 0.85)],
    "pandas_table": [("test accuracy", 0.95)],
    "resume_own_model": [("test accuracy", 0.8)],
    "schedule_and_best_model": [("best model on test data: accuracy", 0.9)],
    "segmentation": [("test accuracy", 0.85), ("IoU", 0.65)],
    "two_outputs": [("test R²", 0.7)],
    "variable_length": [("test accuracy", 0.75)],
}
"""Words before the last number of that kind which an example prints, and what the number is at least.

An untrained model is below: it gets a tenth of the digits right, 0.75 of the pixels, 0.8 of ten labels, but
never all ten."""


def run(path: Path, folder: Path) -> str:
    done = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 80
    printed = run(path, tmp_path)
    for words, least in NUMBERS.get(path.stem, []):
        found = re.findall(rf"{re.escape(words)} (-?[\d.]+\d)", printed)
        assert found, f"{words!r} is not in {printed}"
        assert least <= float(found[-1]) <= 1, printed
    assert "accuracy" in printed or path.stem in NUMBERS
    if path.stem == "resume_own_model":
        assert "the same bits: True" in printed
    if path.stem == "load_in_another_program":
        found = re.findall(r"(?:trained|last model|recorded), test accuracy ([\d.]+\d)", printed)
        assert len(found) == 3
        assert len(set(found)) == 1


def test_the_deployment_runs(tmp_path: Path) -> None:
    test_example_runs(FOLDER / "deployment" / "run_here.py", tmp_path)


def test_there_is_an_example_for_each_door() -> None:
    text = "".join(path.read_text("utf-8") for path in EXAMPLES)
    assert all(door in text for door in ("sy.run(", "sy.Federation(", "sy.weigh(", "sy.combine("))
