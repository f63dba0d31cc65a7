"""Runs on a device whose tensors cannot be mixed with those of the CPU agree with runs on the CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs_on_pretend_device import CASES, IMAGES, cnn

from steelyard.layout import layout_of

pytestmark = pytest.mark.xdist_group("pretend device")  # one process runs all cases
PROGRAM = Path(__file__).with_name("runs_on_pretend_device.py")
CLOSE = {"vectorized", "task: pixels"}
"""Cases in which sums are taken in another order."""


@pytest.fixture(scope="module")
def printed() -> Any:
    """What the program prints. A process of its own: such a device stays as long as its process."""
    done = subprocess.run([sys.executable, "-W", "ignore", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_a_run_on_a_device_has_the_numbers_of_the_cpu(printed: Any, name: str) -> None:
    found = printed["outcomes"][name]
    assert found == "same bits" or (name in CLOSE and found == "close"), found


def test_data_are_put_on_the_device_once_and_models_once_a_round(printed: Any) -> None:
    first, second, third = printed["copied"]
    trained, scored = layout_of(cnn()).size, layout_of(cnn()).size
    rows = len(IMAGES)  # which are in a batch
    scaling = 2 * 4  # mean and deviation, for three clients and the test set
    assert second - first == third - second <= trained + scored + rows + scaling
    assert first >= 2 * IMAGES.numel()  # training and test data
