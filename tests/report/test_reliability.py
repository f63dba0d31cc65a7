"""Reliability diagrams: what is drawn is what was counted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from PIL import Image

from steelyard.metrics import Bins, bins
from steelyard.report import reliability
from steelyard.report.reliability import draw_reliability
from steelyard.report.style import new_figure


def some_bins(sharpness: float, count: int = 400) -> Bins:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(count, 3, generator=random)
    return bins((sharpness * logits).log_softmax(1), logits.softmax(1).multinomial(1, generator=random)[:, 0])


def drawn(models: dict[str, Bins], path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    figures: list[Figure] = []

    def caught(*args: Any) -> Figure:
        figures.append(new_figure(*args))
        return figures[0]

    monkeypatch.setattr(reliability, "new_figure", caught)
    draw_reliability(models, "Test", path)
    return figures[0]


@pytest.mark.parametrize(
    "names", [["one"], ["one", "$two_{"], ["one", "two", "a very long name, too long to show"]]
)
def test_a_picture_of_any_number_of_models(names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "reliability.png"
    draw_reliability({name: some_bins(3.0) for name in names}, "Test", path)
    with Image.open(path) as image:
        assert image.width > 450 * len(names)
        assert len(set(image.convert("L").resize((60, 60)).get_flattened_data())) > 10


def test_the_panels_show_accuracies_gaps_shares_and_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"sharp": some_bins(5.0), "flat": some_bins(0.2)}
    axes = drawn(models, tmp_path / "x.png", monkeypatch).axes
    assert len(axes) == 4
    for (name, counted), square, below in zip(models.items(), axes[::2], axes[1::2], strict=True):
        filled = counted.size > 0
        assert square.get_title("left") == name
        assert f"ECE {counted.ece:.1%}" in [text.get_text() for text in square.texts]
        heights = torch.tensor([bar.get_y() + bar.get_height() for bar in square.patches])
        low, high = heights.chunk(2)
        torch.testing.assert_close(low, torch.minimum(*counted[:2])[filled])
        torch.testing.assert_close(high, torch.maximum(*counted[:2])[filled])
        shares = torch.tensor([bar.get_height() for bar in below.patches])
        torch.testing.assert_close(shares, counted.size / counted.size.sum())


def test_overconfidence_and_bins_with_few_examples_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Bins(*(torch.tensor(values).double() for values in ([0.2, 0.7], [0.4, 0.5], [1, 999])))
    square = drawn({"model": counted}, tmp_path / "x.png", monkeypatch).axes[0]
    under, over = square.patches[2:]
    assert (under.get_alpha(), over.get_alpha()) == (reliability.PALE, 1)
    assert same_color(under.get_facecolor()[:3], reliability.UNDER)
    assert same_color(over.get_facecolor()[:3], reliability.OVER)


def test_the_error_stands_above_the_diagram_and_titles_are_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"fedavg+training.lr=0.1+model=light-cnn-s{seed}" for seed in (0, 1)]
    figure = drawn({name: some_bins(0.2) for name in names}, tmp_path / "x.png", monkeypatch)
    figure.canvas.draw()
    squares = figure.axes[::2]
    for square in squares:
        (error,) = square.texts
        assert error.get_window_extent().y0 > square.get_window_extent().y1
        assert not error.get_window_extent().overlaps(square._left_title.get_window_extent())
        assert square._left_title.get_window_extent().y1 < figure.texts[1].get_window_extent().y0
    assert len({square.get_title("left") for square in squares}) == 2
