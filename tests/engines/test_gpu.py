"""Runs on real devices of torch: `pytest -m gpu`. Without one, these tests are skipped."""

import pytest
import torch
from runs_on_pretend_device import CASES, found

pytestmark = pytest.mark.gpu
ALIKE = [
    "images in bytes",
    "alignment",
    "adapters",
    "padded adapters",
    "trainable",
    "restless",
    "items",
    "loaders",
    "vectorized",
    "a pool after that",
    *(name for name in CASES if name.startswith("task: ")),
]
"""Cases in which the model draws no random numbers: these differ between devices."""


@pytest.fixture
def device() -> str:
    """The device that torch can use here."""
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None:
        pytest.skip("torch finds no CUDA, MPS or other device here")
    return found.type


@pytest.mark.parametrize("name", ALIKE)
def test_a_run_on_a_device_is_close_to_one_on_the_cpu(device: str, name: str) -> None:
    plain = found(CASES[name]({"name": "serial"}).run())
    moved = found(CASES[name]({"name": "serial", "device": device}).run())
    assert plain.keys() == moved.keys()
    for key, value in moved.items():
        torch.testing.assert_close(value, plain[key], rtol=1e-2, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("name", sorted(set(CASES) - set(ALIKE)))
def test_equal_runs_on_a_device_agree(device: str, name: str) -> None:
    first, second = (found(CASES[name]({"name": "serial", "device": device}).run()) for _ in range(2))
    for key, value in first.items():
        torch.testing.assert_close(value, second[key], rtol=1e-2, atol=1e-3, equal_nan=True)
