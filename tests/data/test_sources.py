import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from steelyard.data import cifar10 as cifar10_module
from steelyard.data import digits as digits_module
from steelyard.data import fashion_mnist as fashion_module
from steelyard.data import heterogeneous as heterogeneous_module
from steelyard.data import idx
from steelyard.data import mnist as mnist_module
from steelyard.data import mnist_m as mnist_m_module
from steelyard.data import rendered_digits as rendered_module
from steelyard.data import shakespeare as shakespeare_module
from steelyard.data import synthetic as synthetic_module
from steelyard.data import tabular as tabular_module
from steelyard.data.cifar10 import cifar10
from steelyard.data.dataset import Dataset
from steelyard.data.digits import digits
from steelyard.data.fashion_mnist import fashion_mnist
from steelyard.data.fetching import cifar10_png
from steelyard.data.fetching.cifar10_png import from_png
from steelyard.data.mnist import mnist
from steelyard.data.store import Source, status, where
from steelyard.errors import InputError

SOURCES = [
    module.SOURCE
    for module in (
        cifar10_module,
        digits_module,
        fashion_module,
        heterogeneous_module,
        mnist_m_module,
        mnist_module,
        rendered_module,
        shakespeare_module,
        synthetic_module,
        tabular_module,
    )
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def assert_scaled(dataset: Dataset) -> None:
    """The constants are those of the training images: a batch of all has mean 0 and deviation 1."""
    images, _ = dataset.train.batch(torch.arange(len(dataset.train)))
    variance, mean = torch.var_mean(images.double(), dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=5e-4, rtol=0)
    torch.testing.assert_close(variance.sqrt(), torch.ones_like(mean), atol=5e-4, rtol=0)


def test_digits_are_bytes_with_a_channel() -> None:
    dataset = digits()
    assert dataset.name == "digits"
    assert dataset.num_classes == 10
    assert dataset.train.input_shape == dataset.test.input_shape == (1, 8, 8)
    assert dataset.train.inputs.dtype == dataset.test.inputs.dtype == torch.uint8
    assert dataset.train.targets.dtype == torch.int64
    assert (len(dataset.train), len(dataset.test)) == (1442, 355)
    assert dataset.train.rows.equal(torch.arange(1442))
    assert_scaled(dataset)


def test_digits_use_the_whole_range_of_a_byte() -> None:
    from sklearn.datasets import load_digits

    levels = load_digits().data
    dataset = digits()
    images = torch.cat([dataset.train.inputs, dataset.test.inputs])
    assert sorted(set(images.flatten().tolist())) == [round(level * 255 / 16) for level in range(17)]
    assert dataset.train.inputs[0].flatten().tolist() == [round(level * 255 / 16) for level in levels[0]]


def test_digits_hold_out_every_fifth_of_each_class() -> None:
    from sklearn.datasets import load_digits

    classes = torch.from_numpy(load_digits().target)
    dataset = digits()
    for label in range(10):
        assert int((dataset.test.labels == label).sum()) == int((classes == label).sum()) // 5
    tenth = torch.nonzero(classes == 3).flatten()[9]
    image = torch.from_numpy(np.rint(load_digits().images[tenth] * 255 / 16)).to(torch.uint8)
    assert dataset.test.inputs[dataset.test.labels == 3][1, 0].equal(image)


def test_digits_do_not_depend_on_a_seed() -> None:
    torch.manual_seed(1)
    first = digits()
    torch.manual_seed(2)
    second = digits()
    assert first.train.inputs.equal(second.train.inputs)
    assert first.test.targets.equal(second.test.targets)


@pytest.mark.skipif(
    not os.environ.get("STEELYARD_DATA"),
    reason="STEELYARD_DATA does not name a folder with MNIST and Fashion-MNIST",
)
@pytest.mark.parametrize(
    ("factory", "source", "first_labels", "first_sum"),
    [
        (mnist, mnist_module.SOURCE, [5, 0, 4, 1, 9], 27525),
        (fashion_mnist, fashion_module.SOURCE, [9, 0, 0, 3, 0], 76247),
    ],
    ids=["mnist", "fashion_mnist"],
)
def test_the_mnist_family(
    factory: Callable[[], Dataset], source: Source, first_labels: list[int], first_sum: int, cache: Path
) -> None:
    if where(source) is None:
        pytest.skip(f"STEELYARD_DATA has no {source.name}")
    dataset = factory()
    assert dataset.name == source.name
    assert dataset.train.inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test.inputs.shape == (10_000, 1, 28, 28)
    assert dataset.train.inputs.dtype == torch.uint8
    assert dataset.train.targets.dtype == dataset.test.targets.dtype == torch.int64
    assert dataset.train.labels[:5].tolist() == first_labels
    assert int(dataset.train.inputs[0].sum()) == first_sum
    assert dataset.num_classes == 10
    assert len(set(dataset.test.labels.tolist())) == 10
    assert_scaled(dataset)
    assert not cache.exists()


def test_idx_is_parsed_with_its_shape() -> None:
    content = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255])
    assert idx.parse(content).tolist() == [[1, 2, 3], [4, 5, 255]]
    with pytest.raises(InputError, match="has 17 bytes, not 18"):
        idx.parse(content[:-1])
    with pytest.raises(InputError, match="not an idx file"):
        idx.parse(b"\x00\x00\x0d" + content[3:])


@pytest.fixture
def small_cifar(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Pixels of six batches of two images, as (batch, image, pixel, channel)."""
    monkeypatch.setattr(cifar10_png, "BATCH_ROWS", 2)
    return np.random.default_rng(0).integers(0, 256, (6, 2, 1024, 3), dtype=np.uint8)


def test_cifar_pngs_become_the_official_layout(tmp_path: Path, small_cifar: np.ndarray) -> None:
    names = list(cifar10_module.SOURCE.files)
    for name, pixels in zip(names, small_cifar, strict=True):
        Image.fromarray(pixels).save(tmp_path / name.replace(".bin", ".png"))
    (tmp_path / "train_lables.json").write_text(json.dumps(list(range(10))))
    (tmp_path / "test_lables.json").write_text("[7, 8]")
    contents = from_png(tmp_path, names)
    for batch, name in enumerate(names):
        for image in range(2):
            row = contents[name][image * 3073 : (image + 1) * 3073]
            assert row[0] == (7 + image if name == "test_batch.bin" else 2 * batch + image)
            assert row[1 : 1 + 1024] == small_cifar[batch, image, :, 0].tobytes()
            assert row[1 + 2048 :] == small_cifar[batch, image, :, 2].tobytes()


def test_cifar_pngs_of_another_shape_are_refused(tmp_path: Path, small_cifar: np.ndarray) -> None:
    Image.fromarray(small_cifar[0, :1]).save(tmp_path / "test_batch.png")
    for part in ("train", "test"):
        (tmp_path / f"{part}_lables.json").write_text("[1, 2]")
    with pytest.raises(OSError, match=r"test_batch\.png has the shape \(1, 1024, 3\)"):
        from_png(tmp_path, ["test_batch.bin"])


def test_cifar_rows_become_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(label: int) -> bytes:
        return bytes([label]) + bytes([10 + label]) * 1024 + bytes([20]) * 1024 + bytes([30]) * 1023 + b"\x1f"

    names = list(cifar10_module.SOURCE.files)
    files = {name: row(label) + row(label) for label, name in enumerate(names)}
    monkeypatch.setattr(cifar10_module, "load", lambda source: files)
    dataset = cifar10()
    assert dataset.train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert dataset.test.labels.tolist() == [5, 5]
    assert dataset.train.inputs.shape == (10, 3, 32, 32)
    assert dataset.train.inputs.dtype == torch.uint8
    assert dataset.test.inputs[1, :, 0, 0].tolist() == [15, 20, 30]
    assert dataset.test.inputs[1, 2, 31, 31] == 31
    assert len(dataset.train.mean) == len(dataset.train.std) == 3


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_source_can_be_described_without_loading(source: Source, cache: Path) -> None:
    assert source.about
    assert source.licence
    assert bool(source.bundled) != bool(source.files)
    assert source.origins or source.bundled or "no public package" in source.about
    assert all(len(checksum) == 64 for checksum in source.files.values())
    assert len({origin.label for origin in source.origins}) == len(source.origins)
    assert status(source)
    assert not cache.exists()
