"""What all pictures share: a note stands in every one of them, and hides nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from steelyard.report.charts import line_charts
from steelyard.report.split_figure import draw_split
from steelyard.report.style import DPI, NOTE_LINE, noted

NOTE = "QUICK CHECK: small data, few rounds, not the experiment of the paper"
TITLE = "Does reliability go with client accuracy? Spearman, mean of 10 rounds"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def chart(path: Path) -> None:
    line_charts({"seed 0": {"FedAvg": {1: 0.5, 2: 0.6}}}, TITLE, "round", "accuracy", path, {})


def split(path: Path) -> None:
    draw_split(torch.eye(3).long() * 40, list("abc"), list("xyz"), "A split", path)


def legend_in_the_corner(path: Path) -> None:
    from steelyard.report.style import save

    figure = Figure(figsize=(6, 3), facecolor="white")
    figure.subplots().plot([1, 2], label="a line")
    figure.suptitle("A title from the left to the right", x=0.01, ha="left")
    figure.legend(loc="upper right")
    save(figure, path)


def pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("draw", [chart, split, legend_in_the_corner])
@pytest.mark.parametrize("lines", [1, 2])
def test_a_note_is_above_the_picture_and_moves_nothing_in_it(
    draw: Callable[[Path], None], lines: int, tmp_path: Path
) -> None:
    draw(tmp_path / "plain.png")
    with noted("QUICK CHECK" if lines == 1 else f"{NOTE}. {NOTE}"):
        draw(tmp_path / "noted.png")
    plain, picture = pixels(tmp_path / "plain.png"), pixels(tmp_path / "noted.png")
    strip = len(picture) - len(plain)
    assert strip == round(DPI * (0.1 + NOTE_LINE * lines))
    assert np.array_equal(picture[strip:], plain)
    inked = picture[:strip].astype(int)[(picture[:strip] < 250).any(axis=2)]
    assert len(inked) > 300, "the note"
    assert (inked[:, 0] > inked[:, 1]).all(), "nothing but the note, which is red"
    assert (picture[:, -4:] > 250).all(), "the note ends before the picture does"


def test_a_title_fits_into_a_chart_of_one_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **more: figures.append(figure))
    chart(tmp_path / "a.png")
    (figure,) = figures
    assert figure.texts[-1].get_text() == TITLE
    assert figure.texts[-1].get_window_extent().x1 < figure.bbox.x1


def test_experiments_save_their_pictures_with_the_note() -> None:
    bare = [path for path in EXPERIMENTS.rglob("*.py") if ".savefig(" in path.read_text("utf-8")]
    assert bare == [], "these should call steelyard.report.style.save"
