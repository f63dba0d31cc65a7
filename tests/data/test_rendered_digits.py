"""Rendered digits: the same bits for a seed, all classes alike, and readable."""

from typing import Any

import numpy as np
import pytest
import torch

from steelyard.data import rendered_digits as module
from steelyard.data.examples import Examples
from steelyard.data.rendered_digits import rendered_digits
from steelyard.errors import InputError


def test_the_same_seed_gives_the_same_bits_and_another_gives_others() -> None:
    first = rendered_digits(40, 20, seed=3)
    module._draw.cache_clear()
    torch.manual_seed(7)
    np.random.seed(7)  # the global generators do not matter
    again, other = rendered_digits(40, 20, seed=3), rendered_digits(40, 20, seed=4)
    for part in ("train", "test"):
        mine, same, another = (getattr(each, part) for each in (first, again, other))
        assert mine.inputs is not same.inputs
        assert mine.inputs.equal(same.inputs)
        assert mine.labels.equal(same.labels)
        assert not mine.inputs.equal(another.inputs)
        assert not mine.labels.equal(another.labels)


def test_a_set_is_drawn_once() -> None:
    assert rendered_digits(40, 20).train.inputs is rendered_digits(count=40, test=20, seed=0).train.inputs


def test_images_are_bytes_of_three_channels_scaled_by_those_to_train_on() -> None:
    dataset = rendered_digits(100, 50)
    assert dataset.name == "rendered-digits"
    assert dataset.num_classes == 10
    assert dataset.train.inputs.shape == (100, 3, 32, 32)
    assert dataset.test.inputs.shape == (50, 3, 32, 32)
    assert dataset.train.inputs.dtype == dataset.test.inputs.dtype == torch.uint8
    assert dataset.train.targets.dtype == torch.int64
    assert int(dataset.train.inputs.min()) < 10
    assert int(dataset.train.inputs.max()) > 245
    images, _ = dataset.train.span(0, 100)
    variance, mean = torch.var_mean(images.double(), dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-5, rtol=0)
    torch.testing.assert_close(variance, torch.ones_like(mean), atol=1e-5, rtol=0)
    assert (dataset.test.mean, dataset.test.std) == (dataset.train.mean, dataset.train.std)


def test_classes_are_equally_frequent_and_in_no_order() -> None:
    dataset = rendered_digits(100, 50)
    assert dataset.train.labels.bincount().tolist() == [10] * 10
    assert dataset.test.labels.bincount().tolist() == [5] * 10
    assert len(set(dataset.train.labels[:10].tolist())) > 1
    assert not dataset.train.labels.equal(dataset.train.labels.sort().values)
    assert rendered_digits(23, 1).train.labels.bincount().sort().values.tolist() == [2] * 7 + [3] * 3


def test_no_image_is_drawn_twice() -> None:
    dataset = rendered_digits(100, 50)
    drawn = torch.cat([dataset.train.inputs, dataset.test.inputs]).flatten(1)
    assert len(drawn.unique(dim=0)) == 150


def test_every_font_has_ten_different_digits() -> None:
    for name, glyphs in zip(module.FONTS, module._glyphs(), strict=True):
        assert len({glyph.tobytes() for glyph in glyphs}) == 10, name
        assert min(glyph.height for glyph in glyphs) > 40, name


def test_a_digit_is_all_in_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEIGHBOUR", 0.0)
    random = np.random.default_rng(0)
    for number in range(100):
        covered = np.asarray(module._shape(random, number % 10))
        assert covered.max() > 150
        edges = (covered[0], covered[-1], covered[:, 0], covered[:, -1])
        assert max(int(edge.max()) for edge in edges) == 0


def test_a_digit_stands_out_from_all_that_is_behind_it() -> None:
    random = np.random.default_rng(0)
    contrasts = []
    for _ in range(300):
        _, behind = module._background(random)
        colour = module._colour(random, behind)
        contrasts.append(np.abs(colour @ module.BRIGHTNESS - behind).min())
    assert min(contrasts) > 0.2
    assert np.mean(np.array(contrasts) > module.CONTRAST) > 0.9


def features(part: Examples) -> np.ndarray[Any, Any]:
    """How far each pixel is from the image's median, since digits are darker than the rest or lighter."""
    grey = part.inputs.float().mean(1).flatten(1)
    distance = (grey - grey.median(1, keepdim=True).values).abs()
    return (distance / distance.amax(1, keepdim=True)).numpy()


def test_a_simple_classifier_reads_them() -> None:
    from sklearn.svm import SVC

    dataset = rendered_digits(600, 200)
    classifier = SVC().fit(features(dataset.train), dataset.train.labels.numpy())
    accuracy = classifier.score(features(dataset.test), dataset.test.labels.numpy())
    assert accuracy > 0.4, "four times chance"


@pytest.mark.parametrize("settings", [{"count": 0}, {"test": -1}], ids=str)
def test_settings_that_make_no_sense(settings: dict[str, int]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(InputError, match=f"{name} must be at least 1, not {value}"):
        rendered_digits(**settings)
