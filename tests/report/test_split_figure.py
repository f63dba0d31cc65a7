"""The picture of a split: readable whatever the number of clients and classes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from steelyard.report.split_figure import _order_by_classes, _summary, draw_split
from steelyard.report.style import distinct, readable


def draw(
    counts: Tensor, path: Path, thumbnails: Tensor | None = None, names: list[str] | None = None
) -> NDArray[np.uint8]:
    clients, classes = counts.shape
    class_names = names or [f"class {label}" for label in range(classes)]
    draw_split(
        counts, class_names, [f"client {client}" for client in range(clients)], "A split", path, thumbnails
    )
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def random_counts(clients: int, classes: int) -> Tensor:
    return torch.randint(0, 300, (clients, classes), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("clients", "classes"), [(1, 1), (3, 2), (10, 10), (40, 10), (12, 100), (41, 10), (1000, 10), (2000, 62)]
)
def test_any_split_gives_a_picture_of_a_sane_size(tmp_path: Path, clients: int, classes: int) -> None:
    pixels = draw(random_counts(clients, classes), tmp_path / "split.png")
    height, width, _ = pixels.shape
    assert 150 < height < 2600
    assert 400 < width < 2600
    assert len(np.unique(pixels.astype(int) @ [1, 256, 65536])) > 20
    inked = np.asarray((pixels < 250).any(axis=2))
    assert inked.mean() > 0.05
    # Nothing is cut off: the outermost pixels are blank.
    assert not inked[:8].any()
    assert not inked[-8:].any()
    assert not inked[:, :8].any()
    assert not inked[:, -4:].any()


def test_where_the_rows_are_is_where_the_dark_cells_are(tmp_path: Path) -> None:
    counts = torch.eye(4, dtype=torch.long).mul(50)
    pixels = draw(counts, tmp_path / "split.png", names=list("abcd")).astype(int)
    dark = np.argwhere((np.abs(pixels - [8, 52, 61]) < 3).all(axis=2))  # the darkest colour of the scale
    assert len(dark) > 4 * 1000
    assert np.asarray(np.corrcoef(dark.T))[0, 1] > 0.9, "a diagonal from the top left to the bottom right"


def test_the_picture_of_many_clients_shows_each_class_as_a_band(tmp_path: Path) -> None:
    labels = torch.randint(0, 5, (300,), generator=torch.Generator().manual_seed(0))
    counts = torch.nn.functional.one_hot(labels, 5) * 20
    pixels = draw(counts, tmp_path / "split.png").astype(int)
    dark = np.argwhere((np.abs(pixels - [8, 52, 61]) < 3).all(axis=2) & (np.arange(pixels.shape[1]) < 1500))
    assert np.asarray(np.corrcoef(dark.T))[0, 1] > 0.9, (
        "clients are ordered by class, so the bands form a staircase"
    )


def test_the_sizes_of_many_clients_are_drawn_above_their_classes(tmp_path: Path) -> None:
    counts = torch.tensor([[0, 10], [40, 0]]).repeat(
        50, 1
    )  # class 0 is drawn first and has the large clients
    pixels = draw(counts, tmp_path / "split.png").astype(int)
    bars = np.asarray((np.abs(pixels - [159, 179, 189]) < 3).all(axis=2))
    heights = bars.sum(axis=0)
    left, right = np.array_split(heights[heights > 0], 2)
    assert left.mean() > 3 * right.mean()


@pytest.mark.parametrize("channels", [1, 3])
def test_thumbnails_widen_the_picture_and_show_their_colour(tmp_path: Path, channels: int) -> None:
    counts = random_counts(6, 10)
    images = torch.zeros(6, 4, channels, 8, 8)
    images[:, :, 0] = 1.0  # red, or white on one channel
    plain = draw(counts, tmp_path / "plain.png")
    shown = draw(counts, tmp_path / "shown.png", images)
    assert shown.shape[1] > plain.shape[1] + 150
    red = (shown == [255, 0, 0]).all(axis=2).sum()
    assert red > 10_000 if channels == 3 else red == 0


def test_thumbnails_are_left_out_for_many_clients(tmp_path: Path) -> None:
    counts = random_counts(60, 4)
    plain = draw(counts, tmp_path / "plain.png")
    assert np.array_equal(plain, draw(counts, tmp_path / "with.png", torch.rand(60, 2, 1, 8, 8)))


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    names = ["$", "\n", "a_{", "$x$", "a very long class name that cannot fit"]
    draw(random_counts(5, 5), tmp_path / "few.png", names=names)
    draw(random_counts(50, 5), tmp_path / "many.png", names=names)
    draw_split(random_counts(1, 5), names, ["$a_{$"], "a title of $b_{$", tmp_path / "title.png")
    assert readable("\n", 5) == "\\n"
    assert readable("abcdef", 5) == "abcd…"


def test_the_summary_counts_rows_and_classes() -> None:
    table = np.array([[1000, 0], [500, 500]])
    assert _summary(table) == "2 clients · 2,000 rows (1,000 each) · 1.5 of 2 classes per client on average"
    assert "(0 to 3 each)" in _summary(np.array([[0, 0], [1, 2]]))


def test_clients_are_sorted_by_their_classes() -> None:
    shares = np.array([[0.1, 0.9, 0.0], [0.6, 0.4, 0.0], [0.6, 0.0, 0.4], [0.0, 1.0, 0.0], [0.6, 0.4, 0.0]])
    assert _order_by_classes(shares).tolist() == [1, 4, 2, 3, 0]


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = "import sys, steelyard.report.split_figure; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_small_splits_are_shaded_by_share_as_large_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = torch.tensor([[300, 100], [3, 1]])
    grid, scale, *_ = drawn(counts, ["a", "b"], ["x", "y"], monkeypatch).axes
    assert grid.collections[0].get_array().ravel().tolist() == [0.75, 0.25, 0.75, 0.25]
    assert [label.get_text() for label in scale.get_xticklabels()] == ["0%", "75%"]
    assert [text.get_text() for text in scale.texts] == ["shade: share of the client's rows"]


def drawn(
    counts: Tensor, class_names: list[str], client_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The figure of a split."""
    figures: list[Any] = []
    monkeypatch.setattr("steelyard.report.split_figure.save", lambda figure, path: figures.append(figure))
    draw_split(counts, class_names, client_names, "A split", Path("split.png"))
    figures[0].canvas.draw()
    return figures[0]


LETTERS = ["\n", " ", *"!$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"]


@pytest.mark.parametrize("clients", [12, 60])
@pytest.mark.parametrize("names", [LETTERS, [f"HAMLET, NUMBER {number}" for number in range(65)]])
def test_labels_of_65_classes_run_into_nothing(
    clients: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = drawn(random_counts(clients, 65), names, [f"c{n}" for n in range(clients)], monkeypatch)
    drawings = [axes.get_window_extent() for axes in figure.axes]
    texts = [text for text in figure.findobj(Text) if text.get_text() in ("rows", "share")] + figure.texts
    for axes in figure.axes:
        texts += [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label]
    labels = [text.get_window_extent() for text in texts if text.get_text().strip() and text.get_visible()]
    assert len(labels) > 40
    assert all(figure.bbox.containsx(label.x0) and figure.bbox.containsx(label.x1) for label in labels)
    for number, label in enumerate(labels):
        assert not any(label.overlaps(drawing) for drawing in drawings)
        assert not any(label.overlaps(other) for other in labels[:number])


def test_labels_that_are_cut_are_still_different(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [f"ROMEO OF THE LONG NAME {number}" for number in range(12)]
    figure = drawn(random_counts(12, 2), ["a", "b"], clients, monkeypatch)
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown[:10] == clients[:10]
    assert [name[-3:] for name in shown[10:]] == [" 10", " 11"]
    assert max(map(len, shown)) == 24
    assert distinct(["short", "abcdefg1", "abcdefg2"], 7) == ["short", "abc…fg1", "abc…fg2"]
    assert distinct(["abcdefXuvwxyz", "abcdefYuvwxyz"], 7) == ["abcd… 1", "abcd… 2"]
    assert distinct(["a"] * 2, 7) == ["a 1", "a 2"]
