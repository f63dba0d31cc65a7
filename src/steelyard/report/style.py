"""Colours, figures and axes that all pictures share; sizes are in inches."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import InputError

if TYPE_CHECKING:  # matplotlib takes most of a second to import, so only functions that draw import it
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

INK, FAINT, BAR = "#1d2b33", "#6b7a83", "#9fb3bd"
RAMP = ("#f1f4f5", "#cfe3e6", "#8fc1c6", "#3f929c", "#12606c", "#08343d")
ALARM = "#c0392b"
DPI = 150
FORMATS = ("png", "pdf", "svg")
NOTE_LETTER, NOTE_LINE = 0.068, 0.16  # inches: width of a letter, height of a line

NOTE: ContextVar[str] = ContextVar("note", default="")
"""What is written into every picture and above every Markdown table, see `noted`."""


@contextmanager
def noted(text: str) -> Iterator[None]:
    """Within the context, pictures and tables say this as well: that they are of a small trial, say."""
    token = NOTE.set(text)
    try:
        yield
    finally:
        NOTE.reset(token)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG, PDF or SVG, whichever the name ends with."""
    area = _noted_above(figure, NOTE.get()) if NOTE.get() else None
    figure.savefig(path, dpi=DPI, format=picture_format(path), bbox_inches=area)


def _noted_above(figure: "Figure", note: str) -> "Bbox":
    """Write the note into a strip above the figure, where nothing else is; returns the area of both."""
    from matplotlib.transforms import Bbox

    width, height = figure.get_size_inches()
    text = textwrap.fill(note, int((width - 0.2) / NOTE_LETTER))
    place: dict[str, Any] = {"ha": "left", "va": "bottom", "parse_math": False}
    figure.text(0.1 / width, 1 + 0.04 / height, text, fontsize=7.5, weight="bold", color=ALARM, **place)
    for legend in figure.legends:  # "upper right" means of the figure, not of the strip
        if legend.get_bbox_to_anchor() is figure.bbox:
            legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
    return Bbox([[0, 0], [width, height + 0.1 + NOTE_LINE * (text.count("\n") + 1)]])


def picture_format(path: Path) -> str:
    """The format of a picture, from the end of its name."""
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise InputError(f"a picture is a file that ends with .png, .pdf or .svg, not {str(path)!r}.")
    return ending


def new_figure(width: float, height: float, title: str, subtitle: str, left: float) -> "Figure":
    """A white figure with a title, widened if the title needs it."""
    from matplotlib.figure import Figure

    width = max(width, left + 0.125 * len(title) + 0.2, left + 0.072 * len(subtitle) + 0.2)
    figure = Figure(figsize=(width, height), facecolor="white")
    place: dict[str, Any] = {"ha": "left", "va": "top", "parse_math": False}
    figure.text(left / width, 1 - 0.18 / height, title, fontsize=13, weight="bold", color=INK, **place)
    figure.text(left / width, 1 - 0.45 / height, subtitle, fontsize=9, color=FAINT, **place)
    return figure


def new_axes(figure: "Figure", left: float, bottom: float, width: float, height: float) -> "Axes":
    """Axes at a position in inches, without frame and ticks."""
    across, up = figure.get_size_inches()
    axes = figure.add_axes((left / across, bottom / up, width / across, height / up))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    return axes


def ramp() -> "Colormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("steelyard", RAMP)


def label_angle(names: list[str], cell: float) -> int:
    """Rotation of labels in degrees: 0 if they fit into `cell` inches, else 45, or 90 for narrow cells."""
    return 0 if max(map(len, names)) * 0.08 - 0.01 <= cell else 45 if cell > 0.3 else 90


def readable(name: str, longest: int) -> str:
    """A name cut to `longest` characters; control characters (a newline as a class name) are escaped."""
    name = name if name.isprintable() else repr(name)[1:-1]
    return name if len(name) <= longest else name[: longest - 1] + "…"


def distinct(names: Sequence[str], longest: int) -> list[str]:
    """Names cut to `longest` characters; those that are then equal lose their middle, or get a number."""
    cut = [readable(name, longest) for name in names]
    for shorten in (_without_middle, _numbered):
        equal = {text for text in cut if cut.count(text) > 1}
        cut = [shorten(names, i, longest) if text in equal else text for i, text in enumerate(cut)]
    return cut


def _without_middle(names: Sequence[str], index: int, longest: int) -> str:
    name = readable(names[index], sys.maxsize)
    end = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[: longest - 1 - end]}…{name[len(name) - end :]}"


def _numbered(names: Sequence[str], index: int, longest: int) -> str:
    number = f" {index + 1}"
    return readable(names[index], longest - len(number)) + number
