"""A part of MNIST-M: images are those of the file, and without it an error says where to put it."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from steelyard.data import mnist_m as module
from steelyard.data.mnist_m import FILE, SOURCE, mnist_m
from steelyard.data.store import where
from steelyard.errors import InputError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.skipif(
    not os.environ.get("STEELYARD_DATA"), reason="STEELYARD_DATA does not name a folder with MNIST-M"
)
def test_the_part_that_is_at_hand(cache: Path) -> None:
    if where(SOURCE) is None:
        pytest.skip(f"STEELYARD_DATA has no {SOURCE.name}")
    dataset = mnist_m()
    assert dataset.name == "mnist-m"
    assert dataset.num_classes == 10
    assert dataset.train.inputs.shape == (3_500, 3, 32, 32)
    assert dataset.test.inputs.shape == (700, 3, 32, 32)
    assert dataset.train.inputs.dtype == dataset.test.inputs.dtype == torch.uint8
    assert dataset.train.inputs.is_contiguous()
    assert dataset.train.targets.dtype == dataset.test.targets.dtype == torch.int64
    assert dataset.train.labels[:5].tolist() == [5, 0, 4, 1, 9], "in the order of MNIST"
    assert dataset.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    images, _ = dataset.train.span(0, 3_500)
    variance, mean = torch.var_mean(images.double(), dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=5e-4, rtol=0)
    torch.testing.assert_close(variance.sqrt(), torch.ones_like(mean), atol=5e-4, rtol=0)
    assert not cache.exists()


def test_images_keep_their_colours_and_their_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    labels = np.array([3, 1, 4, 1, 5], np.uint8)
    content = io.BytesIO()
    np.savez_compressed(content, train_x=pixels[:3], train_y=labels[:3], test_x=pixels[3:], test_y=labels[3:])
    monkeypatch.setattr(module, "where", lambda source: Path())
    monkeypatch.setattr(module, "load", lambda source: {FILE: content.getvalue()})
    dataset = mnist_m()
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([3, 1, 4], [1, 5])
    assert dataset.train.inputs[2, :, 7, 30].tolist() == pixels[2, 7, 30].tolist()
    assert dataset.test.inputs[1, :, 31, 0].tolist() == pixels[4, 31, 0].tolist()


def test_without_the_file_an_error_says_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"no public package has it: put mnistm-SUBSET\S+npz into") as caught:
        mnist_m()
    assert f"STEELYARD_DATA is {tmp_path}" in str(caught.value)


def test_a_file_of_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path))
    (tmp_path / SOURCE.name).mkdir()
    (tmp_path / SOURCE.name / FILE).write_bytes(b"something else")
    with pytest.raises(InputError, match="wrong checksum"):
        mnist_m()
